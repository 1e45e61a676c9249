"""An attack on the observation of a run folder: reads that one file, writes what was found back into the folder."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from exhume.attacks.certificate import HELD_OUT_FRACTION
from exhume.attacks.choice import tell
from exhume.attacks.loop import Limits, Progress, run_attack
from exhume.attacks.problem import Method
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


@dataclass(frozen=True)
class AttackedRun:
    summary: dict[str, Any]
    interrupted: bool


def attack_run(
    run: RunFolder,
    method: Method,
    settings: AttackSettings,
    watch: Callable[[Progress], None] | None = None,
    observation: Observation | None = None,
) -> AttackedRun:
    """`observation` is that of the run where it was read already."""
    attacked = run_attack(
        tell(run.observation() if observation is None else observation, method, settings.samples),
        method,
        seed=settings.seed,
        limits=settings.limits,
        held_out=settings.held_out,
        dtype=settings.dtype,
        products=settings.products,
        device=settings.device,
        watch=watch,
        checkpoint=run.checkpoint,
    )
    return AttackedRun(run.save_attack(attacked.reconstruction, attacked.trace), attacked.interrupted)
