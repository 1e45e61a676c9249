"""What every case of attack has in common: the resources it may use, and the judgement it ends with."""

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.given import Given
from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.held_out import HeldOut
from exhume.reconstruction import Certificate

Facts = dict[str, Any]
"""What a case found out about the victim before the attack began: keys of the summary."""


@dataclass(frozen=True)
class Resources:
    """Memory for V on each rank (None: half of the machine's), precisions, and where to compute.

    `timed`: there is a limit of time, so that a search may go on until it is reached.
    """

    memory_bytes: int | None
    dtype: torch.dtype
    products: torch.dtype
    device: torch.device
    ranks: Ranks = ALONE
    timed: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Judgement:
    """The published loss of candidates on all weights of the attack, and what unseen weights say of them.

    `facts` are further keys of the summary that only the result could tell.
    """

    loss: float
    coefficients: Float[Tensor, "m k"]
    certificate: Certificate
    facts: Facts = field(default_factory=dict)


@runtime_checkable
class PassCount(Protocol):
    """The work that was done so far, in passes over the weights' features."""

    @property
    def passes(self) -> float: ...


@runtime_checkable
class AttackProblem(Protocol):
    """What a method works on. All that the loop reads of it are the passes that its loss counts."""

    @property
    def loss(self) -> PassCount: ...


P_co = TypeVar("P_co", bound=AttackProblem, covariant=True)


@runtime_checkable
class Case(Protocol[P_co]):
    """An observation made ready for a method: what the method is given, and the verdict on what it finds."""

    @property
    def problem(self) -> P_co: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def given(self) -> Given:
        """What the method makes use of."""
        ...

    @property
    def held_out(self) -> HeldOut:
        """What was kept from the method, to judge by."""
        ...

    def unseen_loss(self, candidates: Float[Tensor, "m c"]) -> float | None:
        """The loss of candidates on what was held out; None where nothing was."""
        ...

    def judge(self, candidates: Float[Tensor, "m c"]) -> Judgement: ...

    def lift(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        """The samples that candidates of this case stand for."""
        ...
