"""The content of a report: one JSON-able dictionary from which the page is made, and nothing else."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from exhume.attacks.silent.attack import SilentUnits
from exhume.reconstruction import Outcome, Reconstruction
from exhume.report.evidence import Evidence, Pictures, with_truth, without_truth
from exhume.report.frames import Recovery, recovery
from exhume.report.knowledge import knowledge, known_samples, not_tested
from exhume.report.model_card import model_card
from exhume.report.next_steps import next_steps
from exhume.report.pictures import blurred, to_base64_png
from exhume.report.pieces import compared, reading_of, with_pieces
from exhume.report.recipes import assumed_by
from exhume.report.silent_layers import silent_section
from exhume.report.subject import Subject
from exhume.report.tables import table_section
from exhume.report.verdict import VerdictInput, verdict
from exhume.theory import ZONE_TITLES, explain, gauge
from exhume.verdicts import FITTED, Findings, Verdict
from exhume.version import VERSION

REPORT_SCHEMA = 2
MOST_TRACE_POINTS = 400
MOST_ROWS = 1000
MOST_PICTURES = 40
MOST_PICTURE_CHARACTERS = 2_500_000
PICTURES = ("pictures", "strips")


def gather(subject: Subject) -> Evidence:
    """What the candidates are worth, record by record."""
    if subject.found is None:
        return Evidence([], None, None, [], False)
    reading = reading_of(subject.found, subject.observation)
    if subject.truth is None:
        shape = subject.observation.image_shape if reading is None else reading.picture_shape
        return without_truth(subject.found, shape)
    if reading is not None:
        return with_pieces(subject.truth, subject.found, reading, subject.control)
    return with_truth(subject.truth, subject.found, subject.observation, subject.scores, subject.control)


def describe(subject: Subject, evidence: Evidence, reveal: bool) -> dict[str, Any]:
    """Everything that the page shows. Without `reveal` its pictures are blurred before they are stored."""
    observation, found = subject.observation, subject.found
    has_truth = evidence.recovered is not None
    reading = reading_of(found, observation)
    happened = Recovery([], []) if reading is not None else recovery(subject, evidence.rows, reveal)
    said = verdict(case_of(subject, evidence))
    content: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "run": subject.name,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "revealed": reveal,
        "has_truth": has_truth,
        "noun": _noun(subject),
        "verdict": said,
        "next": next_steps(subject, Verdict(said["verdict"])),
        "not_tested": not_tested(found, observation, has_truth, subject.defences, subject.attempts),
        "stronger": subject.stronger,
        "of_versions": subject.of_versions,
        "defences": subject.defences,
        "artefact": _artefact(subject),
        "knowledge": knowledge(found, observation),
        "gauge": gauge_section(subject, evidence),
        "layers": subject.layers,
        "silent": silent_section(subject, evidence),
        "notes": subject.notes,
        "attempts": subject.attempts,
        "passed_over": subject.passed_over,
        "attack": None if found is None else _attack(subject, found),
        "results": evidence.results,
        "compared": None if reading is None else compared(reading),
        "control": evidence.control,
        "directions_only": evidence.directions_only,
        "directions": evidence.directions,
        "sign_free": evidence.sign_free,
        "rows": evidence.rows[:MOST_ROWS],
        "rows_left_off": max(0, len(evidence.rows) - MOST_ROWS),
        **_pictures(evidence, reveal),
        "table": table_section(subject, evidence, reveal),
        "frames": happened.frames,
        "strips": happened.strips,
        "trace": thin(subject.trace),
        "recipes": subject.recipes,
        "what_if": subject.what_if,
        "commands": subject.commands,
    }
    content["model_card"] = model_card(content)
    return content


def case_of(subject: Subject, evidence: Evidence) -> VerdictInput:
    found, control = subject.found, evidence.control or {}
    certificate = None if found is None else found.certificate
    checked = certificate is not None and certificate.held_out_loss is not None
    records = None if evidence.recovered is None else len(evidence.rows)
    findings = Findings(
        outcome=None if certificate is None else certificate.outcome,
        held_out=certificate.held_out_rows if certificate is not None and checked else 0,
        stopped=subject.stopped,
        broken=tuple(subject.recipes["broken"]) if subject.recipes else (),
        loss=None if found is None else found.loss,
        determined=_determined(subject, records),
        starts=subject.starts,
        floor=subject.floor if assumed_by(found, subject.observation)[1] else None,
        samples=records,
        recovered=evidence.recovered,
        directions=evidence.directions,
        luck=evidence.luck,
        control_samples=control.get("samples"),
        control_recovered=control.get("recovered"),
        control_directions=control.get("directions"),
    )
    units = found is not None and found.method == SilentUnits.name
    reading = reading_of(found, subject.observation)
    return VerdictInput(
        findings,
        candidates=0 if found is None else len(found.candidates),
        trusted=0 if found is None else _trusted(found),
        noun=_noun(subject),
        held_out_loss=None if certificate is None else certificate.held_out_loss,
        held_out_rows=0 if certificate is None else certificate.held_out_rows,
        doubts={} if found is None else found.facts.get("doubts", {}),
        chance=None if found is None else found.facts.get("chance"),
        units=units,
        pictures=int(found.facts.get("pictures") or 0) if found is not None else 0,
        pieces=None if reading is None else reading.noun,
        whole=reading is not None and reading.pieces > 1,
        start_known=subject.observation.knowledge.initial != "distribution",
        **_held_out(found),
    )


def _noun(subject: Subject) -> str:
    """What the owner would call one of the data."""
    if subject.observation.image_shape is not None:
        return "image"
    return "sample" if subject.truth is None or subject.truth.table is None else "record"


def _trusted(found: Reconstruction) -> int:
    """Files of the first form keep no confidence per candidate; where all is recovered, every one is trusted."""
    whole = found.outcome is Outcome.RECOVERED and not found.certificate.confidence
    return len(found.candidates) if whole else found.trusted


def _determined(subject: Subject, records: int | None) -> bool | None:
    """Whether p >= dn, for the n that the owner tells; records can only make it more."""
    if subject.samples is None:
        return None
    return subject.observation.p >= subject.observation.d * max(subject.samples, records or 0)


def _held_out(found: Reconstruction | None) -> dict[str, str]:
    """In the words of the attack; older ones have left none."""
    if found is None or found.held_out is None:
        return {}
    return {"held_out": found.held_out.what, "looked_at": found.held_out.looked_at}


def without_pictures(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in PICTURES}


def thin(trace: list[dict[str, float]], most: int = MOST_TRACE_POINTS) -> list[dict[str, float]]:
    """At most `most` lines of a trace, evenly spread, the first and the last among them; three columns each."""
    if not trace:
        return []
    kept = np.unique(np.linspace(0, len(trace) - 1, min(most, len(trace))).round().astype(int))
    columns = ("iteration", "loss", "passes")
    return [{name: trace[index][name] for name in columns if name in trace[index]} for index in kept]


def shown(pictures: Pictures, reveal: bool) -> Pictures:
    """The pictures as they may be stored."""
    if reveal:
        return pictures
    return Pictures(blurred(pictures.found), None if pictures.truth is None else blurred(pictures.truth))


def _pictures(evidence: Evidence, reveal: bool) -> dict[str, Any]:
    """Pictures in the order of the rows, until there are enough of them or they weigh too much."""
    items: list[dict[str, Any]] = []
    total = 0
    if evidence.pictures is not None:
        found, truth = evidence.pictures.found, evidence.pictures.truth
        # an image of which nothing came back is no evidence, and no reader needs to see it
        came = [index for index, row in enumerate(evidence.rows) if row["candidate"] is not None]
        total, first = len(came), came[:MOST_PICTURES]
        allowed = shown(Pictures(found[first], None if truth is None else truth[first]), reveal)
        weight = 0
        for place, index in enumerate(first):
            item = {
                "row": index,
                "found": to_base64_png(allowed.found[place]),
                "true": None if allowed.truth is None else to_base64_png(allowed.truth[place]),
            }
            weight += sum(len(text) for text in (item["found"], item["true"]) if isinstance(text, str))
            if weight > MOST_PICTURE_CHARACTERS:
                break
            items.append(item)
    return {"pictures": items, "pictures_left_off": total - len(items)}


def _artefact(subject: Subject) -> dict[str, Any]:
    artefact, observation = subject.artefact, subject.observation
    outputs, p = observation.weights.shape
    return {
        "file": artefact.file,
        "kind": artefact.kind,
        "sha256": artefact.sha256,
        "bytes": artefact.size,
        "weights": [outputs, p],
        "dtype": str(observation.weights.dtype).removeprefix("torch."),
        "features": observation.features.description,
        "data": artefact.data,
        "training_loss": artefact.training_loss,
        "training_seed": artefact.training_seed,
        "training_versions": artefact.training_versions,
        "version": VERSION,
    }


@dataclass(frozen=True)
class _Count:
    n: int | None
    source: str | None


def _count(subject: Subject, has_truth: bool, samples: int | None) -> _Count:
    """The number of samples, and who says so."""
    found, observation = subject.found, subject.observation
    known = known_samples(found, observation)
    if samples is not None:
        counted = "that changed between the versions" if subject.of_versions else "counted in the training data"
        return _Count(samples, counted if has_truth else "as told by the owner")
    if known is not None:
        return _Count(known, "as told to the attack")
    reading = reading_of(found, observation)
    one_each = reading is None or reading.pieces == 1
    if found is not None and found.outcome is Outcome.RECOVERED and one_each:
        return _Count(len(found.candidates), "as found by the attack")
    return _Count(None, None)


def gauge_section(subject: Subject, evidence: Evidence) -> dict[str, Any]:
    has_truth = evidence.recovered is not None
    samples = len(evidence.rows) if has_truth else subject.samples
    count = _count(subject, has_truth, samples)
    measured = gauge(subject.observation.equations, subject.observation.d, count.n)
    last_layer = subject.observation.p
    return {
        "p": measured.p,
        "last_layer": last_layer,
        "parameters": max(last_layer, sum(layer["parameters"] for layer in subject.layers)),
        "d": measured.d,
        "n": measured.n,
        "n_source": count.source,
        "labels_ratio": measured.labels_ratio,
        "ratio": measured.ratio,
        "capacity": measured.capacity,
        "zone": measured.zone,
        "zone_title": ZONE_TITLES[measured.zone],
        "sentences": explain(measured, parameters=last_layer),
    }


def _attack(subject: Subject, found: Reconstruction) -> dict[str, Any]:
    return {
        "method": found.method,
        "seed": found.seed,
        "finished": subject.finished,
        "stopped": subject.stopped,
        "candidates": len(found.candidates),
        "trusted": found.trusted,
        "loss": found.loss,
        "held_out_loss": found.held_out_loss,
        "held_out_rows": found.certificate.held_out_rows,
        "held_out": "weights" if found.held_out is None else found.held_out.what,
        "layer": _layer(found),
        "converged": _converged(found),
        "iterations": found.iterations,
        "passes": found.passes,
        "seconds": round(found.seconds, 3),
        "peak_memory_mb": round(found.peak_memory_mb, 1),
        "settings": {key: _plain_setting(value) for key, value in sorted(found.settings.items())},
    }


def _layer(found: Reconstruction) -> dict[str, Any] | None:
    """What an attack on one layer found in it; None for attacks on the head."""
    if found.method != SilentUnits.name:
        return None
    facts = found.facts
    return {
        "name": facts["layer"],
        "rank": facts["rank"],
        "gap": facts["gap"],
        "found": facts.get("pieces", len(found.candidates)),
        "trusted": facts.get("pieces_trusted", found.trusted),
        "directions_only": facts["directions_only"],
        "expected_error": facts.get("expected_error"),
    }


def _converged(found: Reconstruction) -> bool | None:
    """Whether the attack fitted the weights that it used; None where a partial outcome leaves that open."""
    if found.outcome is not Outcome.PARTIAL:
        return found.outcome is Outcome.RECOVERED or found.loss <= FITTED
    tolerance = found.settings.get("tolerance")
    return None if tolerance is None else found.loss <= tolerance


def _plain_setting(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) else value
