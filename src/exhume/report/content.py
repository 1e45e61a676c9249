"""The content of a report: one JSON-able dictionary from which the page is made, and nothing else."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from exhume.experiments.run import RunFolder
from exhume.files import read_json
from exhume.observation import Observation
from exhume.reconstruction import Outcome, Reconstruction
from exhume.report.commands import commands, data_name
from exhume.report.evidence import Evidence, Pictures, with_truth, without_truth
from exhume.report.pictures import blurred, to_base64_png
from exhume.report.verdict import Case, knowledge, model_card, not_tested, told_samples, verdict
from exhume.theory import ZONE_TITLES, explain, gauge
from exhume.version import VERSION

REPORT_SCHEMA = 1
MOST_TRACE_POINTS = 400
MOST_ROWS = 1000
MOST_PICTURES = 40
MOST_PICTURE_CHARACTERS = 2_500_000


def collect(run: RunFolder, reveal: bool) -> dict[str, Any]:
    """Everything that the page shows. Without `reveal` its pictures are blurred before they are stored."""
    found, observation, summary = run.reconstruction(), run.observation(), run.summary()
    return describe(run, gather(run, found, observation, summary), found, observation, summary, reveal)


def gather(run: RunFolder, found: Reconstruction, observation: Observation, summary: dict[str, Any]) -> Evidence:
    return (
        with_truth(run.truth(), found, observation, summary) if run.has_truth() else without_truth(found, observation)
    )


def describe(
    run: RunFolder,
    evidence: Evidence,
    found: Reconstruction,
    observation: Observation,
    summary: dict[str, Any],
    reveal: bool,
) -> dict[str, Any]:
    """The content for evidence that is already at hand."""
    config = read_json(run.path / "config.json") if (run.path / "config.json").exists() else {}
    name = run.path.resolve().name
    noun = "image" if observation.image_shape is not None else "sample"
    has_truth = evidence.recovered is not None
    samples = len(evidence.rows) if has_truth else None
    case = Case(
        found.outcome,
        len(found.candidates),
        noun,
        found.held_out_loss,
        found.certificate.held_out_rows,
        samples,
        evidence.recovered,
    )
    content: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "run": name,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "revealed": reveal,
        "has_truth": has_truth,
        "noun": noun,
        "verdict": verdict(case),
        "not_tested": not_tested(found, observation, has_truth),
        "artefact": _artefact(run, observation, summary, config),
        "knowledge": knowledge(found, observation),
        "gauge": _gauge(found, observation, samples),
        "attack": _attack(run, found),
        "results": evidence.results,
        "directions_only": evidence.directions_only,
        "rows": evidence.rows[:MOST_ROWS],
        "rows_left_off": max(0, len(evidence.rows) - MOST_ROWS),
        **_pictures(evidence, reveal),
        "trace": thin(run.trace()),
        "commands": commands(name, config, found, reveal),
    }
    content["model_card"] = model_card(content)
    return content


def without_pictures(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != "pictures"}


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
        total = len(evidence.pictures.found)
        truth = evidence.pictures.truth
        first = Pictures(evidence.pictures.found[:MOST_PICTURES], None if truth is None else truth[:MOST_PICTURES])
        allowed = shown(first, reveal)
        weight = 0
        for index, row in enumerate(evidence.rows[:MOST_PICTURES]):
            no_candidate = row["candidate"] is None
            item = {
                "row": index,
                "found": None if no_candidate else to_base64_png(allowed.found[index]),
                "true": None if allowed.truth is None else to_base64_png(allowed.truth[index]),
            }
            weight += sum(len(text) for text in (item["found"], item["true"]) if isinstance(text, str))
            if weight > MOST_PICTURE_CHARACTERS:
                break
            items.append(item)
    return {"pictures": items, "pictures_left_off": total - len(items)}


def _artefact(
    run: RunFolder, observation: Observation, summary: dict[str, Any], config: dict[str, Any]
) -> dict[str, Any]:
    path = run.path / "observation.safetensors"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    outputs, p = observation.weights.shape
    return {
        "file": path.name,
        "sha256": digest,
        "bytes": path.stat().st_size,
        "weights": [outputs, p],
        "dtype": str(observation.weights.dtype).removeprefix("torch."),
        "features": observation.features.description,
        "data": _data(summary, config),
        "training_loss": summary.get("training_loss"),
        "training_seed": summary.get("train_seed"),
        "training_versions": config.get("versions"),
        "version": VERSION,
    }


def _data(summary: dict[str, Any], config: dict[str, Any]) -> str | None:
    """The description of the data, where a user's folder is named without the folders that lead to it."""
    described: str | None = summary.get("data")
    name = str(config.get("data", {}).get("name", ""))
    if described and name and described.startswith(f"{name}:"):
        return data_name(name) + described.removeprefix(name)
    # a description that cannot be told apart from a path is left out
    return described if described and not {"/", "\\"} & set(described) else None


def _gauge(found: Reconstruction, observation: Observation, samples: int | None) -> dict[str, Any]:
    told = told_samples(found, observation)
    n, source = samples, "counted in the training data"
    if n is None and told is not None:
        n, source = told, "as told to the attack"
    elif n is None and found.outcome is Outcome.RECOVERED:
        n, source = len(found.candidates), "as found by the attack"
    measured = gauge(observation.p, observation.d, n)
    return {
        "p": measured.p,
        "d": measured.d,
        "n": measured.n,
        "n_source": source if n is not None else None,
        "labels_ratio": measured.labels_ratio,
        "ratio": measured.ratio,
        "capacity": measured.capacity,
        "zone": measured.zone,
        "zone_title": ZONE_TITLES[measured.zone],
        "sentences": explain(measured),
    }


def _attack(run: RunFolder, found: Reconstruction) -> dict[str, Any]:
    finished = (run.path / "reconstruction.safetensors").stat().st_mtime
    return {
        "method": found.method,
        "seed": found.seed,
        "finished": datetime.fromtimestamp(finished, UTC).isoformat(timespec="seconds"),
        "candidates": len(found.candidates),
        "loss": found.loss,
        "held_out_loss": found.held_out_loss,
        "held_out_rows": found.certificate.held_out_rows,
        "converged": _converged(found),
        "iterations": found.iterations,
        "passes": found.passes,
        "seconds": round(found.seconds, 3),
        "peak_memory_mb": round(found.peak_memory_mb, 1),
        "settings": {key: _plain_setting(value) for key, value in sorted(found.settings.items())},
    }


def _converged(found: Reconstruction) -> bool | None:
    """Whether the attack met its own tolerance; None where a partial outcome leaves that open."""
    if found.outcome is not Outcome.PARTIAL:
        return found.outcome is not Outcome.NOT_CONVERGED
    tolerance = found.settings.get("tolerance")
    return None if tolerance is None else found.loss <= tolerance


def _plain_setting(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) else value
