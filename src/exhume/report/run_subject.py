"""A run folder as the subject of a page."""

import hashlib
from datetime import UTC, datetime
from typing import Any

from exhume.attacks.running.snapshots import SNAPSHOTS_FILE, load_snapshots
from exhume.experiments.run import RunFolder
from exhume.report.commands import commands
from exhume.report.defences import applied_defences
from exhume.report.recipes import assumed_by, recipes_section
from exhume.report.subject import Artefact, Subject, attempt_line
from exhume.requests.command_line import last_part


def subject_of_run(run: RunFolder, *, reveal: bool, factory: str | None = None) -> Subject:
    """Reads what is in the folder. `factory` names code of the user's own that may run to make the features."""
    found, observation, summary = run.reconstruction(), run.observation(factory), run.summary()
    run.check_one_attack(found)
    config = run.config()
    name = run.path.resolve().name
    finished = (run.path / "reconstruction.safetensors").stat().st_mtime
    stopped = run.checkpoint.exists()
    truth = run.truth() if run.has_truth() else None
    floor = summary.get("floor") if truth is not None else None
    zero, breaking = observation.knowledge.initial == "zero", assumed_by(found, observation)[0]
    return Subject(
        name=name,
        artefact=_artefact(run, summary, config),
        observation=observation,
        found=found,
        finished=datetime.fromtimestamp(finished, UTC).isoformat(timespec="seconds"),
        commands=commands(name, config, found, reveal, factory),
        stopped=stopped,
        trace=run.trace(),
        snapshots=load_snapshots(run.path / SNAPSHOTS_FILE),
        truth=truth,
        scores=summary,
        defences=applied_defences(config, summary),
        attempts=[attempt_line(found, "The attack of this run.", stopped)],
        recipes=recipes_section(_shown(config), floor, None, zero, breaking) if config.get("victim") else None,
        floor=floor,
    )


def _shown(config: dict[str, Any]) -> list[str]:
    """How a victim that was made here was trained."""
    model = dict(config.get("model") or {})
    recipe = dict(model.get("recipe") or {})
    ways = [str(recipe.get("method", "gd"))]
    ways += ["momentum"] if recipe.get("momentum") else []
    ways += ["weight-decay"] if recipe.get("weight_decay") else []
    return ways + (["dp-sgd"] if model.get("privacy") else [])


def _artefact(run: RunFolder, summary: dict[str, Any], config: dict[str, Any]) -> Artefact:
    path = run.path / "observation.safetensors"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Artefact(
        file=path.name,
        sha256=digest,
        size=path.stat().st_size,
        data=_data(summary, config),
        training_loss=summary.get("training_loss"),
        training_seed=summary.get("train_seed"),
        training_versions=config.get("versions"),
    )


def _data(summary: dict[str, Any], config: dict[str, Any]) -> str | None:
    """The description of the data, where a user's folder is named without the folders that lead to it."""
    described: str | None = summary.get("data")
    name = str((config.get("data") or {}).get("name") or "")
    if described and name and described.startswith(f"{name}:"):
        return last_part(name) + described.removeprefix(name)
    # a description that cannot be told apart from a path is left out
    return described if described and not {"/", "\\"} & set(described) else None
