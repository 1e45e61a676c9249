"""Several attacks on one observation, each within the same time, side by side.

Attacks that cannot be made on it are listed with the reason. Nothing of the run folder is changed: what the attacks
found stays in memory, and the errors are taken from the truth afterwards, where there is one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from exhume.attacks.running.prepare import run as run_prepared
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.attack_request import AttackRequest
from exhume.experiments.known_samples import unknown_part
from exhume.experiments.run import RunFolder
from exhume.experiments.scoring import score
from exhume.files import SCHEMA
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction
from exhume_papers.studies.family import FamilyMember, family


@dataclass(frozen=True)
class ComparedAttack:
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
    dtype: str = "float32",
    factory: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[ComparedAttack]:
    """Every attack of those names (none: the whole family), in at most so many seconds each."""
    for name in set(names) - {member.name for member in family()}:
        raise UsageError(f"expected attacks out of {', '.join(member.name for member in family())}, found {name!r}")
    observation = run.observation(factory)
    compared = []
    for member in family():
        if names and member.name not in names:
            continue
        say(f"{member.name} ...")
        try:
            request = AttackRequest(method=member.name, budget=seconds, dtype=dtype)
            found = run_prepared(request.prepare(run, observation, seed)).reconstruction
        except ExhumeError as reason:
            compared.append(ComparedAttack(member.name, member.composition.knowledge, str(reason)))
            continue
        compared.append(_row(run, observation, member, found))
    return compared


def as_json(run: RunFolder, compared: Sequence[ComparedAttack], seconds: float) -> dict[str, Any]:
    rows = [{name: _finite(value) for name, value in asdict(row).items()} for row in compared]
    return {"schema": SCHEMA, "run": run.path.name, "budget_seconds": _finite(seconds), "attacks": rows}


def _row(run: RunFolder, observation: Observation, member: FamilyMember, found: Reconstruction) -> ComparedAttack:
    row = ComparedAttack(
        name=member.name,
        knowledge=member.composition.knowledge,
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
