"""An attack on the observation of a run folder: reads that one file, writes what was found back into the folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from exhume.attacks.certificate import HELD_OUT_FRACTION
from exhume.attacks.choice import tell
from exhume.attacks.loop import Limits, Progress, run_attack
from exhume.attacks.problem import Method
from exhume.attacks.ranks import ALONE, Ranks
from exhume.attacks.room import require_room
from exhume.attacks.snapshots import SNAPSHOTS_FILE, SnapshotKeeper, save_snapshots
from exhume.attacks.start import SEEDS, Start, find_start
from exhume.experiments.run import RunFolder
from exhume.observation import Observation


@dataclass(frozen=True)
class AttackSettings:
    """How to attack, besides the method: what the attacker is told and what he may use."""

    samples: int | None = None
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    held_out: float = HELD_OUT_FRACTION
    dtype: torch.dtype = torch.float32
    products: torch.dtype | None = None
    device: torch.device | str = "cpu"
    start_seeds: int = SEEDS
    """How many seeds are tried where the initial head is known up to its seed."""
    ranks: Ranks = ALONE
    """The processes that share the attack; each of them makes it, and the first writes what was found."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """The options that asked for all this, to be kept with what was found."""


@dataclass(frozen=True)
class AttackedRun:
    """`summary` is empty on all ranks but the first."""

    summary: dict[str, Any]
    interrupted: bool
    start: str | None = None
    """What came of the search for the initial head, where there was one."""
    continues: bool = True
    """Whether the same command would go on from what an interrupted one found."""


def searched_start(observation: Observation, settings: AttackSettings) -> Start | None:
    """What came of the search for the initial head; None where it is not known up to its seed."""
    return find_start(observation, settings.start_seeds) if observation.knowledge.initial == "seed" else None


def attack_run(
    run: RunFolder,
    method: Method,
    settings: AttackSettings,
    watch: Callable[[Progress], None] | None = None,
    observation: Observation | None = None,
) -> AttackedRun:
    """`observation` is that of the run where it was read already."""
    seen = run.observation() if observation is None else observation
    start = searched_start(seen, settings)
    told = tell(seen if start is None else start.observation, method, settings.samples)
    require_room(told, method, settings.limits.memory_bytes, settings.dtype, settings.ranks)
    attacked = run_attack(
        told,
        method,
        seed=settings.seed,
        limits=settings.limits,
        held_out=settings.held_out,
        dtype=settings.dtype,
        products=settings.products,
        device=settings.device,
        watch=watch if settings.ranks.first else None,
        checkpoint=run.checkpoint,
        keeper=SnapshotKeeper(),
        ranks=settings.ranks,
    )
    if not settings.ranks.first:
        return AttackedRun({}, attacked.interrupted)
    save_snapshots(attacked.snapshots, run.path / SNAPSHOTS_FILE)
    found = replace(attacked.reconstruction, request=dict(settings.request))
    summary = run.save_attack(found, attacked.trace, {} if start is None else start.summary())
    if not attacked.stopped:  # not before everything is written: it is hours of work until then
        run.checkpoint.unlink(missing_ok=True)
    return AttackedRun(summary, attacked.interrupted, None if start is None else start.describe())
