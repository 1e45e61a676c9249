"""All layers of a two-layer network, as far as an observation tells them: what attacks on every weight start from."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from exhume.activations import Activation
from exhume.errors import UsageError
from exhume.features.rows import Rows
from exhume.observation import Observation


@dataclass(frozen=True, eq=False)
class WholeNetwork:
    """f(x) = W₂ φ(W₁ x) in float64, with its first layer before training where that is known.

    `head_change` is W₂(T) − c W₂(0), where c is what weight decay left; None where the initial head is not known.
    """

    first: Float[Tensor, "h d"]
    head: Float[Tensor, "k h"]
    activation: Activation
    initial_first: Float[Tensor, "h d"] | None
    head_change: Float[Tensor, "k h"] | None


def whole_network(observation: Observation) -> WholeNetwork:
    """Every layer, or one line that says what is missing."""
    if observation.features.is_network or observation.features.bias is not None:
        raise UsageError(f"expected a two-layer network without bias, found {observation.features.description}")
    features, head = observation.ridge, observation.published_head
    if not features.trained:
        raise UsageError(f"expected a first layer that was trained, found {features.description}, that was not")
    if head is None:
        raise UsageError("expected the trained head, found its change only; train the network again with this version")
    shown = every_row(features.rows)
    initial = None if observation.initial_rows is None else every_row(observation.initial_rows)
    if observation.knowledge.initial_body:  # rows halfway between both ends are shown
        if initial is None:
            raise UsageError("expected the trained first layer, found only its average with an unknown initial one")
        shown = 2 * shown - initial
    known = observation.knowledge.initial in ("known", "zero")
    change = observation.weights.double() if known else None
    return WholeNetwork(shown, head.double(), features.activation, initial, change)


def every_row(rows: Rows) -> Float[Tensor, "h d"]:
    return rows.block(0, rows.p).double().cpu()
