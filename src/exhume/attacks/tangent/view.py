"""Two ways to look at all weights of a two-layer network as combinations of gradients.

    ntk    the change of both layers, explained by gradients halfway between both ends of training, or at one of them:
           at the trained weights, as published, or at the initial ones
    kkt    the first layer itself, which grew from next to nothing; at the end of training, where a classifier has
           nearly its largest margin or weight decay holds the weights, it is a combination of the gradients there

Where the target of the first layer shows a gap in its spectrum, its row space is the span of the data, and the network
is looked at as a function of coordinates there.
"""

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from exhume.activations import Activation
from exhume.attacks.foundation.parametrisation import Subspace
from exhume.attacks.foundation.spectrum import decompose, rounding
from exhume.attacks.subspace.first_layer import first_layer_note, first_layer_spectrum
from exhume.attacks.tangent.span import Rule, Targets
from exhume.errors import UsageError
from exhume.features.layered import LayeredNetwork
from exhume.features.rows import HeldRows, Rows
from exhume.observation import Observation


@dataclass(frozen=True, eq=False, repr=False)
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


FAR_ABOVE = 10.0  # a gap in the weights themselves; at a factor of 2, one sample of 18 fewer was recognised


@dataclass(frozen=True)
class TangentView:
    """`weights_themselves`: the target is not a change (kkt). `back`: where the gradients of ntk are taken, from
    0 at the trained weights to 1 at the initial ones.

    `span`: search in the row space of the first layer's target where it has a gap. `smoothness` is that of the
    coordinates, `rule` that of the coefficients.
    """

    weights_themselves: bool
    back: float = 0.5
    span: bool = True
    smoothness: float = 1.0
    rule: Rule = "free"


@dataclass(frozen=True, eq=False, repr=False)
class TangentProspect:
    """A network, a target for each of its layers, and the subspace whose coordinates both are in (None: all of R^d)."""

    network: LayeredNetwork
    targets: Targets
    subspace: Subspace | None
    note: str | None
    """What is known of the span of the data, and from where."""
    rank: int | None = None
    """That of the first layer's target, which is n where samples are independent."""


def look(
    whole: WholeNetwork, view: TangentView, used: Int[Tensor, " u"], norm: float, given: Subspace | None = None
) -> TangentProspect:
    """`used` are the rows of the first layer that may be looked at; `norm` is that of the inputs.

    `given`: a subspace that somebody knows the data to lie in, instead of what the first layer shows.
    """
    prospect = (
        _look_at_weights(whole, used, norm) if view.weights_themselves else _look_at_change(whole, view, used, norm)
    )
    shown = prospect.subspace if view.span else None
    subspace = shown if given is None else given
    if subspace is None:
        return replace(prospect, subspace=None)
    basis = subspace.basis.to(whole.first)
    first, *others = prospect.targets
    assert first is not None, "the first layer is always looked at"
    return TangentProspect(
        prospect.network.seen_through(basis),
        (first @ basis, *others),
        Subspace(basis),
        prospect.note if given is None else f"given: {given.r} dimensions",
        (shown or subspace).r,
    )


def _look_at_change(whole: WholeNetwork, view: TangentView, used: Int[Tensor, " u"], norm: float) -> TangentProspect:
    initial, head_change = whole.initial_first, whole.head_change
    if initial is None or head_change is None:
        missing = "first layer" if initial is None else "head"
        raise UsageError(
            f"expected the weights before training, found none of the {missing}; train with --knows-first-layer and a "
            "known head"
        )
    layer = first_layer_spectrum(HeldRows(whole.first[used]), HeldRows(initial[used]))
    change = whole.first - layer.scale * initial
    weights = (whole.first - view.back * change, whole.head - view.back * head_change)
    network = LayeredNetwork.measured(weights, whole.activation, norm)
    subspace = layer.subspace if layer.exact else None
    return TangentProspect(network, (change, head_change), subspace, first_layer_note(layer))


def _look_at_weights(whole: WholeNetwork, used: Int[Tensor, " u"], norm: float) -> TangentProspect:
    network = LayeredNetwork.measured((whole.first, whole.head), whole.activation, norm)
    subspace = row_space(whole.first[used])
    note = None if subspace is None else f"first layer: spans {subspace.r} dimensions"
    return TangentProspect(network, (whole.first, None), subspace, note)


def row_space(rows: Float[Tensor, "u d"]) -> Subspace | None:
    """The directions above the last gap in the spectrum; None where there is none that is wide.

    What is below it is no rounding but the start, in which weak samples hide where the gap is narrow.
    """
    shown = decompose(rows.double(), rounding(rows))
    return Subspace(shown.directions.to(rows.dtype)) if shown.clear and shown.gap >= FAR_ABOVE else None
