"""Several attacks on one observation, each within the same time, side by side.

Attacks that cannot be made on it are listed with the reason. Nothing of the run folder is changed: what the attacks
found stays in memory, and the errors are taken from the truth afterwards, where there is one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from exhume.attacks.choice import choose_method, known_subspace, tell
from exhume.attacks.family import FAMILY, composition
from exhume.attacks.loop import Limits, run_attack
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.known_samples import keep_known, unknown_part
from exhume.experiments.run import RunFolder
from exhume.experiments.scoring import score
from exhume.features.module import ModuleFeatures
from exhume.files import SCHEMA
from exhume.known import KNOWN_FILE
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction


@dataclass(frozen=True)
class Compared:
    """One attack. `reason`: why it was not made; all other fields but the name and the knowledge are None then.

    `error` is rho, `recovered` the share of samples within 0.1 of a candidate, `recognised` the number of those that
    have a |cosine| above 0.9 with one; None without a truth.
    """

    name: str
    knowledge: str
    reason: str | None = None
    outcome: str | None = None
    error: float | None = None
    chance_error: float | None = None
    recovered: float | None = None
    recognised: int | None = None
    candidates: int | None = None
    trusted: int | None = None
    loss: float | None = None
    held_out_loss: float | None = None
    seconds: float | None = None
    passes: float | None = None


def compare_attacks(
    run: RunFolder,
    names: Sequence[str],
    seconds: float,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    factory: str | None = None,
    told: Callable[[str], None] = lambda line: None,
) -> list[Compared]:
    """Every attack of those names (none: the whole family), in at most so many seconds each."""
    for name in names:
        if composition(name) is None:
            raise UsageError(f"expected attacks out of {', '.join(entry.name for entry in FAMILY)}, found {name!r}")
    observation = run.observation(factory)
    compared = []
    for entry in FAMILY:
        if names and entry.name not in names:
            continue
        told(f"{entry.name} ...")
        try:
            found = _attack(run, observation, entry.name, seconds, seed, dtype)
        except (UsageError, ExhumeError) as reason:
            compared.append(Compared(entry.name, entry.knowledge, str(reason)))
            continue
        compared.append(_row(run, observation, entry.knowledge, found))
    return compared


def as_json(run: RunFolder, compared: Sequence[Compared], seconds: float) -> dict[str, Any]:
    rows = [{name: _finite(value) for name, value in asdict(row).items()} for row in compared]
    return {"schema": SCHEMA, "run": run.path.name, "budget_seconds": _finite(seconds), "attacks": rows}


def _attack(
    run: RunFolder, observation: Observation, name: str, seconds: float, seed: int, dtype: torch.dtype
) -> Reconstruction:
    network = isinstance(observation.features, ModuleFeatures)
    if name == "informed":
        if not (run.path / KNOWN_FILE).exists():
            raise UsageError("needs the other samples: 'exhume known' writes them")
        observation = replace(observation, known=keep_known(run, None, observation.d))
    if observation.start is not None:
        raise UsageError("needs the initial head, which is known up to its seed: 'exhume attack' looks for it")
    method = choose_method(name, network=network, known=known_subspace(observation))
    attacked = run_attack(tell(observation, method, None), method, seed=seed, limits=Limits(seconds), dtype=dtype)
    return attacked.reconstruction


def _row(run: RunFolder, observation: Observation, knowledge: str, found: Reconstruction) -> Compared:
    row = Compared(
        name=found.method,
        knowledge=knowledge,
        outcome=found.outcome.value,
        candidates=len(found.candidates),
        trusted=sum(value >= 0.5 for value in found.certificate.confidence),
        loss=found.loss,
        held_out_loss=found.held_out_loss,
        seconds=found.seconds,
        passes=found.passes,
    )
    if not run.has_truth():
        return row
    truth = unknown_part(run, run.truth()) if found.method == "informed" else run.truth()
    scores = score(truth, found, observation.features)
    evaluation = scores.evaluation
    return replace(
        row,
        error=evaluation.error,
        chance_error=evaluation.chance_error,
        recovered=evaluation.recovered_fraction,
        recognised=scores.recognised,
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
