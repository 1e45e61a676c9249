"""What a method of attack is given, and what it hands out while it works.

A method is a frozen dataclass of hyperparameters with a name and one generator, `steps`: it yields its iterates, best
last, and each carries all that is needed to go on from it. The loop around it (`attacks/loop.py`) keeps the trace, the
clock, the checkpoints and the certificate, so a method holds mathematics only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.attacks.ridge.span import SpanLoss


@dataclass(frozen=True, eq=False)
class Problem:
    """The projected loss on the rows that the attack may use, and what the attacker knows besides.

    `coarse` is the same loss with V in bfloat16 where products in it were asked for, otherwise `loss` itself.
    `steering_loss(candidates, coefficients)` is their loss on weights that are not fitted and not those of the verdict
    either: to choose between results; coefficients that are not given are fitted. None where there are no such rows.
    `rounding` is the mean square of the rounding error that the published weights show, over their own. `drifts`: the
    features are known to have moved during training, so that the weights are only nearly in their span, and further
    candidates go on to explain a little more. `start`: candidates that were found elsewhere, to begin with. There are
    `at_least` so many samples. `at_most` so many candidates fit into memory.
    """

    loss: SpanLoss
    coarse: SpanLoss
    norm: float
    samples: int | None
    seed: int
    steering_loss: "Steering"
    rounding: float
    dtype: torch.dtype
    device: torch.device
    drifts: bool = False
    start: Float[Tensor, "m d"] | None = None
    at_least: int = 1
    at_most: int | None = None

    @property
    def drifted(self) -> bool:
        """Whether the features may have moved while the weights were trained."""
        return self.drifts or self.loss.features.trained

    def generator(self, stream: int = 0) -> torch.Generator:
        """Random numbers for the attack's start; further streams (restarts) are independent of the first."""
        return torch.Generator().manual_seed(seeds.derive(seeds.derive(self.seed, "start") + stream, "start"))


@runtime_checkable
class Steering(Protocol):
    def __call__(
        self, candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"] | None = None
    ) -> float | None: ...


@dataclass(frozen=True, eq=False)
class State:
    """All that a method needs to go on from an iterate: tensors, and plain numbers."""

    tensors: dict[str, Tensor]
    numbers: dict[str, float]


@dataclass(frozen=True, eq=False)
class Step:
    """One iterate, and the state to go on from: its own, or that of the last point where going on is possible.

    `notes` go to the trace as columns.
    """

    iteration: int
    candidates: Float[Tensor, "m d"]
    loss: float
    state: State
    notes: dict[str, float] = field(default_factory=dict)


@runtime_checkable
class Method(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def iterations(self) -> int: ...

    @property
    def few_rows(self) -> bool:
        """Whether a part of the rows will do where V does not fit into memory as a whole."""
        ...

    @property
    def for_networks(self) -> bool:
        """Whether it attacks the penultimate features of networks (a `ModuleProblem`), not features φ(Vx + b)."""
        ...

    @property
    def needs_samples(self) -> bool:
        """Whether the number of samples has to be told; otherwise it is found."""
        ...

    def steps(self, problem: Any, resume: State | None = None) -> Iterator[Step]: ...

    def finish(self, problem: Any, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "few d"]:
        """The candidates of a run that was stopped, made fit to be shown."""
        ...
