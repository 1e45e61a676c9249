"""One victim audited as a new user would: with the records, and once more without them."""

import time
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

import exhume
from zoo.core_time import budgets_of_a_core
from zoo.scoring import Score, score
from zoo.victim import Trained


@dataclass(frozen=True)
class Result:
    """What an audit said, and what its candidates are worth. `error` where it raised; everything else is empty then.

    `seconds` are those of a core."""

    seconds: float
    error: str | None = None
    verdict: str | None = None
    severity: int | None = None
    sentence: str | None = None
    confidence: str | None = None
    attack: str | None = None
    pieces: str | None = None
    """What the candidates are where they are no inputs; the score is the audit's own then."""
    score: Score | None = None
    attempts: list[dict[str, Any]] = field(default_factory=list)
    page: list[str] = field(default_factory=list)
    """Every sentence of the page."""


def audited(trained: Trained, budget: float, seed: int, *, with_records: bool) -> Result:
    """Never raises for what an audit does: that is a result, too."""
    began = time.process_time()
    try:
        with budgets_of_a_core():
            made = _audit(trained, budget, seed, with_records)
        seconds = time.process_time() - began
        return replace(_result(made, trained), seconds=round(seconds, 1))
    except Exception as problem:  # whatever goes wrong in an audit is a row of the table
        return Result(time.process_time() - began, error=f"{type(problem).__name__}: {problem}")


def _audit(trained: Trained, budget: float, seed: int, with_records: bool) -> exhume.Audit:
    known = trained.known
    records = (
        {"truth": trained.records.inputs, "control": trained.control.inputs, "labels": _labels(trained)}
        if with_records
        else {"input_shape": tuple(trained.records.inputs.shape[1:])}
    )

    return exhume.audit(
        trained.model,
        initial=known.start,
        optimiser=known.optimiser,
        average=known.average,
        recipe=known.recipe,
        training=None if known.training is None else exhume.Recipe.model_validate(known.training),
        samples=None if known.training is None else len(trained.records),
        budget_seconds=budget,
        seed=seed,
        **records,
    )


def _labels(trained: Trained) -> Tensor | None:
    return trained.records.labels if trained.records.labels.numel() == len(trained.records) else None


def _result(made: exhume.Audit, trained: Trained) -> Result:
    found, content = made.subject.found, made.content()
    pieces = None
    scored = None
    if found is not None:
        reads = str(found.facts.get("reads", "inputs"))
        width = trained.records.inputs[0].numel()
        pieces = None if reads == "inputs" and found.candidates.shape[1] == width else reads
        confidence = found.certificate.confidence
        if pieces is None:
            inputs = trained.records.inputs
            scored = score(found.candidates, confidence, inputs, trained.control.inputs, trained.also)
        else:
            scored = _of_pieces(made, found.candidates, sum(value >= 0.5 for value in confidence))
    return Result(
        seconds=0.0,
        verdict=made.verdict.value,
        severity=made.verdict.severity,
        sentence=made.sentence,
        confidence=made.said["confidence"],
        attack=None if found is None else found.method,
        pieces=pieces,
        score=scored,
        attempts=[_attempt(line) for line in made.subject.attempts],
        page=sentences_of(content),
    )


def _of_pieces(made: exhume.Audit, candidates: Tensor, calls: int) -> Score | None:
    """The audit's own count of records whose patches or embeddings came back; None without records."""
    told = made.summary
    if told["recovered"] is None:
        return None
    control = (told["control"] or {}).get("recovered", 0)
    median, worst = float(told["median_relative_error"]), float(told["worst_relative_error"])
    return Score(told["recovered"], median, worst, control, len(candidates), calls, 0, None)


def _attempt(line: dict[str, Any]) -> dict[str, Any]:
    kept = ("method", "why", "outcome", "note", "candidates", "loss", "held_out_loss", "seconds")
    return {name: line.get(name) for name in kept}


def sentences_of(content: Any) -> list[str]:
    """All prose in the content of a page: strings of several words, wherever they are."""
    if isinstance(content, str):
        return [content] if content.count(" ") >= 3 else []
    parts = content.values() if isinstance(content, dict) else content if isinstance(content, list | tuple) else ()
    return list(dict.fromkeys(text for part in parts for text in sentences_of(part)))
