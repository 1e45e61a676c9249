"""Carries an audit out: the plan, then further starts, then the defences, within its time."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
from torch import Tensor

from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.running.budget import LEAST_SECONDS, Limits, ready_in_time
from exhume.attacks.running.loop import Attacked
from exhume.auditing.attempts import (
    OUT_OF_TIME,
    Attempt,
    Watch,
    agreeing_starts,
    best_of,
    carry_out,
    further_starts,
    require_room_for_any,
)
from exhume.auditing.audit import Audit, AuditSettings, Question
from exhume.auditing.cost import cost_line, cost_of
from exhume.auditing.layers import listed
from exhume.auditing.plan import AuditPlan, make_plan, not_needed
from exhume.auditing.progress_folder import ProgressFolder, ProgressPart
from exhume.auditing.stronger import stronger
from exhume.auditing.target import AuditTarget
from exhume.auditing.what_if import Defended, check_what_if, defend, published
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.truth import Truth
from exhume.metrics.floor import floor_of
from exhume.observation import Observation
from exhume.report.content import case_of, gather
from exhume.report.evidence import Evidence, with_truth
from exhume.report.pieces import reading_of, with_pieces
from exhume.report.recipes import Drift, assumed_by, check_recipes, recipes_section, unrest
from exhume.report.subject import Subject
from exhume.report.verdict import verdict

ROUNDING = 1e-6  # of the largest number: records that differ by less are one
MOST_FLOOR_NUMBERS = 2_000_000_000
"""Features of all records together, above which the floor is not measured."""


def run_audit(
    question: Question, settings: AuditSettings, watch: Watch | None = None, progress: ProgressFolder | None = None
) -> Audit:
    """Carries out the plan, then the defences, within the time; what the attack does not see stays out of it.

    With `progress` it goes on from where an audit with the same settings was stopped.
    """
    truth, target, asked = question.truth, question.target, settings.options
    _check_records(question)
    check_what_if(asked.defences, truth is not None and not bool(truth.labels.isnan().any()))
    now = time.monotonic()
    spent = max(0.0 if progress is None else progress.used, 0.0 if settings.since is None else now - settings.since)
    deadline = now + asked.budget - spent
    with ready_in_time(Limits(max(asked.budget - spent, LEAST_SECONDS), since=now), "a plan"):
        plan = make_plan(target, asked.samples, asked.seed, asked.recipes)
        require_room_for_any(target.observation, plan.offers, settings.of_attacks)
    share = asked.budget / (2 if asked.defences else 1)
    kept = None if progress is None else progress.of("as published", target.observation)
    attempts = _attacked(target.observation, plan.offers, share - spent, settings, watch, kept)
    best = best_of(attempts, partial(_came_back, question))
    refusals = list(dict.fromkeys(attempt.failure for attempt in attempts if attempt.failure))
    if best is None and refusals and OUT_OF_TIME not in refusals:
        raise ExhumeError("; ".join(refusals))  # weights that none takes: a pipeline shall not go on with those
    subject = _subject(question, settings, plan, attempts, best)
    evidence = gather(subject)
    interrupted = _interrupted(attempts)
    if asked.defences and best is not None and not interrupted:
        lines, interrupted = _what_if(question, settings, best.offer, subject, evidence, deadline, watch, progress)
        subject = replace(subject, what_if=lines)
    return Audit(subject, evidence, verdict(case_of(subject, evidence)), interrupted)


def _interrupted(attempts: tuple[Attempt, ...]) -> bool:
    return any(attempt.attacked is not None and attempt.attacked.interrupted for attempt in attempts)


def _attacked(
    observation: Observation,
    offers: tuple[PlannedAttack, ...],
    seconds: float,
    settings: AuditSettings,
    watch: Watch | None,
    kept: ProgressPart | None,
) -> tuple[Attempt, ...]:
    """The plan, and then further starts of an attack that was refuted, as long as there is time."""
    ends = time.monotonic() + seconds
    attempts = carry_out(observation, offers, seconds, settings.of_attacks, watch, kept)
    more, further = further_starts(attempts, settings.options.samples), None if kept is None else kept.further
    left = ends - time.monotonic()
    if not more or (left <= 0 and not (further is not None and further.has_begun(0))):
        return attempts
    return attempts + carry_out(observation, more, left, settings.of_attacks, watch, further)


def _check_records(question: Question) -> None:
    d = question.target.observation.d
    given = {"records": question.truth, "control records": question.control}
    for name, records in given.items():
        if records is not None and records.inputs.shape[1] != d:
            raise UsageError(f"expected {name} of d = {d} numbers, found {records.inputs.shape[1]}")
    if question.truth is not None and question.control is not None:
        _check_apart(question.truth.inputs.double(), question.control.inputs.double())


def _check_apart(trained: Tensor, control: Tensor) -> None:
    """A record cannot be both: what is as close to a control record as to it does not count as recovered."""
    away = torch.cdist(control, trained, p=float("inf")).amin(dim=1)
    same = int((away <= ROUNDING * trained.abs().max()).sum())
    if same:
        raise UsageError(
            f"expected control records that were not trained on, found {same} of {len(control)} among the training "
            "records; leave them out"
        )


def _came_back(question: Question, attempt: Attempt) -> int:
    """How many records an attempt gave, at most up to their norm, or by their pieces; 0 where there are none."""
    truth, observation = question.truth, attempt.offer.seen(question.target.observation)
    found = None if attempt.attacked is None else attempt.attacked.reconstruction
    if truth is None or found is None or not len(found.candidates):
        return 0
    control = None if question.control is None else question.control.inputs
    reading = reading_of(found, observation)
    if reading is not None:
        return with_pieces(truth, found, reading, control).recovered or 0
    if found.candidates.shape[1] != truth.inputs.shape[1]:
        return 0
    evidence = with_truth(truth, found, observation, {}, control)
    return max(evidence.recovered or 0, evidence.directions or 0)


def _subject(
    question: Question, settings: AuditSettings, plan: AuditPlan, attempts: tuple[Attempt, ...], best: Attempt | None
) -> Subject:
    target, truth, control = question.target, question.truth, question.control
    attacked = None if best is None else best.attacked
    floor = None if truth is None else _floor(target.observation, truth)
    zero = target.observation.knowledge.initial == "zero"
    observation = target.observation if best is None else best.offer.seen(target.observation)
    breaking = assumed_by(None if attacked is None else attacked.reconstruction, observation)[0]
    recipes = recipes_section(
        check_recipes(settings.options.recipes), floor, _drift(question, attacked), zero, breaking
    )
    recipes["measured"] += _unrest(target.observation, truth)
    return Subject(
        name=question.name,
        artefact=question.artefact,
        observation=observation,
        found=None if attacked is None else attacked.reconstruction,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        commands=question.commands,
        stopped=attacked is not None and attacked.stopped,
        trace=[] if attacked is None else attacked.trace,
        snapshots=() if best is None else best.snapshots,
        truth=truth,
        control=None if control is None else control.inputs,
        samples=settings.options.samples,
        starts=agreeing_starts(attempts, best),
        layers=listed(target.layers, _layers_read(attempts)),
        notes=list(target.notes),
        attempts=[_named(attempt.line(), target) for attempt in attempts],
        passed_over=[vars(passed) for passed in (*plan.passed_over, *not_needed(plan, attempts))],
        stronger=stronger(
            target,
            attempts,
            samples=settings.options.samples is not None,
            recipe=settings.options.recipes,
            records=truth is not None,
            control=control is not None,
        ),
        recipes=recipes,
        floor=floor,
    )


def _named(line: dict[str, Any], target: AuditTarget) -> dict[str, Any]:
    """The line of an attack with the name of the first layer for its place."""
    first = next((fact.name for fact in target.layers if fact.place == "first"), "first")
    return line | {"layers": [first if layer == "first" else layer for layer in line["layers"]]}


def _layers_read(attempts: tuple[Attempt, ...]) -> dict[str, list[str]]:
    """By the method of each attack that ran."""
    read: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.attacked is not None:
            read.setdefault(attempt.offer.method, []).extend(attempt.attacked.reconstruction.layers_read)
    return read


def _floor(observation: Observation, truth: Truth) -> float | None:
    n, p = len(truth.inputs), observation.features.p
    if n >= p or n * p > MOST_FLOOR_NUMBERS:  # as many features as there are weights explain any
        return None
    return floor_of(observation, truth.inputs.to(observation.weights.dtype))


def _unrest(observation: Observation, truth: Truth | None) -> list[str]:
    """Of each layer that reads the inputs and is said to rest: the share outside of the span of the records."""
    said = []
    for layer in observation.layers if truth is not None else ():
        if truth is None or layer.source != "stationary" or layer.reads != "inputs":
            continue
        rows = truth.inputs.double()
        if layer.bias:
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
        if len(rows) < rows.shape[1]:  # as many records as dimensions span everything
            weights = layer.target.double()
            outside = weights - (weights @ torch.linalg.pinv(rows)) @ rows
            said.append(unrest(layer.name, float(outside.square().sum() / weights.square().sum())))
    return said


def _drift(question: Question, attacked: Attacked | None) -> Drift | None:
    """Where the records are, or else where the candidates are: random inputs may see far less of it."""
    target, truth = question.target, question.truth
    if target.drift is None or target.drift_of is None:
        return None
    if truth is not None:
        return Drift(target.drift_of(truth.inputs), "these records", sure=True)
    found = None if attacked is None else attacked.reconstruction.candidates
    if found is not None and len(found) and found.shape[1] == target.observation.d:
        return Drift(target.drift_of(found), "the candidates", sure=False)
    return Drift(target.drift, "random inputs", sure=False)


def _what_if(
    question: Question,
    settings: AuditSettings,
    offer: PlannedAttack,
    subject: Subject,
    evidence: Evidence,
    deadline: float,
    watch: Watch | None,
    progress: ProgressFolder | None,
) -> tuple[list[dict[str, Any]], bool]:
    """One line for the model as it is, and one for each defence; whether somebody interrupted on the way."""
    target, truth, control = question.target, question.truth, question.control
    cost = cost_of(published(target), target, truth, control)
    lines = [_line("as published", subject, evidence, "") | cost_line(cost)]
    for index, name in enumerate(settings.options.defences):
        left = (deadline - time.monotonic()) / (len(settings.options.defences) - index)
        try:
            if left < LEAST_SECONDS:
                raise ExhumeError(OUT_OF_TIME)
            defended = defend(name, target, truth, settings.options.seed)
            again = _same_attacks(defended.target, offer)
            kept = None if progress is None else progress.of(name, defended.observation)
            attempts = _attacked(defended.observation, again, left, settings, watch, kept)
            lines.append(_reaudited(question, settings, defended, attempts))
            if _interrupted(attempts):
                return lines, True
        except ExhumeError as problem:
            empty = dict.fromkeys(("recovered", "samples", "error", "held_out_loss", "verdict"))
            lines.append({"name": name, "title": "not tried", **empty, "note": str(problem)} | cost_line(None))
    return lines, False


def _same_attacks(target: AuditTarget, offer: PlannedAttack) -> tuple[PlannedAttack, ...]:
    """The attack that did best, or the first one of those that still apply.

    Of an attack on a layer, those on its other states follow: a defence may change one of them and leave the others.
    """
    offers = make_plan(target, offer.samples, offer.seed).offers
    same = [other for other in offers if other.method == offer.method]
    same.sort(key=lambda other: other.layer != offer.layer)
    return tuple(same if offer.layer is not None and same else (same or offers)[:1])


def _reaudited(
    question: Question, settings: AuditSettings, defended: Defended, attempts: tuple[Attempt, ...]
) -> dict[str, Any]:
    seen = replace(question, target=defended.target)
    subject = _subject(seen, settings, AuditPlan((), ()), attempts, best_of(attempts, partial(_came_back, seen)))
    failures = [attempt.failure for attempt in attempts if attempt.failure]
    note = "; ".join([part for part in (defended.note, *failures) if part])
    cost = cost_of(defended, question.target, question.truth, question.control)
    return _line(defended.name, subject, gather(subject), note) | cost_line(cost)


def _line(name: str, subject: Subject, evidence: Evidence, note: str) -> dict[str, Any]:
    said, found = verdict(case_of(subject, evidence)), subject.found
    errors = {line["key"]: line["value"] for line in evidence.results}
    stopped = "the attack was stopped by the budget" if subject.stopped else ""
    return {
        "name": name,
        "verdict": said["verdict"],
        "title": said["title"],
        "recovered": evidence.recovered,
        "samples": len(evidence.rows) if evidence.recovered is not None else None,
        "error": errors.get("error"),
        "held_out_loss": None if found is None else found.held_out_loss,
        "note": "; ".join(part for part in (note, stopped) if part),
    }
