"""What is known of an observation before anything of it is computed: methods are chosen and refused by it.

A sweep has it of victims that are yet to be trained.
"""

from dataclasses import dataclass
from typing import Literal

from exhume.observation import Observation

Source = Literal["first-layer", "moments", "given"]
"""Where a subspace of the data comes from."""
NETWORK, RANDOM_ROWS = "a network", "features of random rows"


@dataclass(frozen=True)
class Outline:
    """None of `outputs` and `samples`: not known.

    `network`: whether the features are those of a network, and not φ(Vx + b). `subspace`: where one of the data can be
    had from. `layers`: what each layer reads of which two states are known; `rebuilt`: they were not observed, but can
    be built again. `replayable`: the whole network at both ends of its training, and the recipe between them.
    """

    d: int
    network: bool = False
    outputs: int | None = None
    samples: int | None = None
    image_shape: tuple[int, int, int] | None = None
    subspace: Source | None = None
    layers: tuple[str, ...] = ()
    rebuilt: bool = False
    replayable: bool = False

    @property
    def kind(self) -> str:
        return NETWORK if self.network else RANDOM_ROWS

    @classmethod
    def of(cls, observation: Observation, rebuilt: bool = False) -> "Outline":
        return cls(
            d=observation.d,
            network=observation.features.is_network,
            outputs=len(observation.weights),
            samples=observation.knowledge.samples,
            image_shape=observation.image_shape,
            subspace=_subspace(observation),
            layers=tuple(layer.reads for layer in observation.layers),
            rebuilt=rebuilt,
            replayable=observation.ends is not None and observation.recipe is not None,
        )


def _subspace(observation: Observation) -> Source | None:
    """From somebody who knows it, or from the first layer's change."""
    if observation.subspace is not None:
        return "given"
    return None if observation.initial_rows is None else "first-layer"
