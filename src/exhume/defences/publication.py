"""A trained head on its way to the public: what an attacker will see of it, and what only its owner knows."""

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.features.selected_rows import selected
from exhume.observation import Observation


@dataclass(frozen=True, eq=False, repr=False)
class Publication:
    """An observation with the owner's training inputs and, where the attacker knows it, the initial head W(0).

    A defence changes the head itself. The weights of an observation are the change W(T) − W(0) if W(0) is known, which
    an attacker computes from the head that was published, and else (`initial` None) the published head.
    """

    observation: Observation
    inputs: Float[Tensor, "n d"] | None = None
    initial: Float[Tensor, "k p"] | None = None

    def __post_init__(self) -> None:
        if self.initial is not None and self.initial.shape != self.observation.weights.shape:
            raise ExhumeError(
                f"expected an initial head of shape {list(self.observation.weights.shape)}, "
                f"found {list(self.initial.shape)}"
            )
        if self.inputs is not None and self.inputs.shape[1] != self.observation.d:
            raise ExhumeError(
                f"expected training inputs of d = {self.observation.d} numbers, found {self.inputs.shape[1]}"
            )

    @property
    def head(self) -> Float[Tensor, "k p"]:
        weights = self.observation.weights
        return weights if self.initial is None else self.initial + weights

    def with_head(self, head: Float[Tensor, "k p"]) -> "Publication":
        change = head if self.initial is None else head - self.initial
        published = None if self.observation.head is None else head
        return replace(self, observation=replace(self.observation, weights=change, head=published))

    def keeping(self, kept: Int[Tensor, " kept"], head: Float[Tensor, "k kept"]) -> "Publication":
        """Features that were pruned away are not published, and with them goes one equation an output each."""
        initial, before = None if self.initial is None else self.initial[:, kept], self.observation.initial_rows
        shift = self.observation.initial_bias
        observation = replace(
            self.observation,
            features=self.observation.features.keeping(kept),
            weights=head if initial is None else head - initial,
            start=None if self.observation.start is None else self.observation.start.keeping(kept),
            head=None if self.observation.head is None else head,
            initial_rows=None if before is None else selected(before, kept),
            initial_bias=None if shift is None else shift[kept],
        )
        return replace(self, observation=observation, initial=initial)
