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

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.attacks.foundation.spectrum import decompose, rounding
from exhume.attacks.subspace.first_layer import first_layer_spectrum, told_of_first_layer
from exhume.attacks.tangent.span import Rule, Targets
from exhume.attacks.tangent.whole_network import WholeNetwork
from exhume.errors import UsageError
from exhume.features.layered import LayeredNetwork
from exhume.features.rows import HeldRows

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


@dataclass(frozen=True, eq=False)
class TangentProspect:
    """A network, a target for each of its layers, and the subspace whose coordinates both are in (None: all of R^d)."""

    network: LayeredNetwork
    targets: Targets
    subspace: Subspace | None
    told: str | None
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
        prospect.told if given is None else f"given: {given.r} dimensions",
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
    return TangentProspect(network, (change, head_change), subspace, told_of_first_layer(layer))


def _look_at_weights(whole: WholeNetwork, used: Int[Tensor, " u"], norm: float) -> TangentProspect:
    network = LayeredNetwork.measured((whole.first, whole.head), whole.activation, norm)
    subspace = row_space(whole.first[used])
    told = None if subspace is None else f"first layer: spans {subspace.r} dimensions"
    return TangentProspect(network, (whole.first, None), subspace, told)


def row_space(rows: Float[Tensor, "u d"]) -> Subspace | None:
    """The directions above the last gap in the spectrum; None where there is none that is wide.

    What is below it is no rounding but the start, in which weak samples hide where the gap is narrow.
    """
    shown = decompose(rows.double(), rounding(rows))
    return Subspace(shown.directions.to(rows.dtype)) if shown.clear and shown.gap >= FAR_ABOVE else None
