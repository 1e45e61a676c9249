"""The layer's change in the coordinates of its span, where the attack works.

L = U S Vᵀ on the units that the attack may use. Whitened, Y = √h U (h × r), so that

    Y = C Z,        x̃_i = V S z_i / √h,        Q = Z⁻¹, whose columns q_i are the duals: Y q_i is column i of C.

A unit's preactivation on the input with coordinates z is its row of W̃ V S / √h times z.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.foundation.spectrum import Spectrum
from exhume.errors import UsageError
from exhume.layer_states import LayerStates
from exhume.observation import Observation
from exhume.observing.dense_layers import layers_of

BATCH_NUMBERS = 2**27  # in one batch of Gram matrices and weighted rows: 1 GiB in float64
ALIVE = 3.0  # times the noise of a row: a unit that changed less has not fired


@dataclass(frozen=True, eq=False, repr=False)
class Span:
    """`units` are the rows of the layer that Y has; `ends` map coordinates to preactivations, the published ones last.

    `unscale` (r × c) takes coordinates to x̃. `noise` is √h σ / S for each coordinate: an entry of Y q is off by
    |noise ∘ q|. `leak` is the share of a column of C that a silent unit may keep."""

    rows: Float[Tensor, "u r"]
    ends: tuple[Float[Tensor, "u r"], ...]
    unscale: Float[Tensor, "r c"]
    noise: Float[Tensor, " r"]
    units: Tensor
    bias: bool
    edge: float
    """The largest singular value that rounding makes: what is below it in L cannot be seen."""
    leak: float = 0.0

    @property
    def r(self) -> int:
        return self.rows.shape[1]

    @property
    def h(self) -> int:
        return len(self.rows)

    @property
    def mean_end(self) -> Float[Tensor, "u r"]:
        return torch.stack(self.ends).mean(dim=0)

    @property
    def pixels(self) -> Float[Tensor, "r d"]:
        """The coordinates of the span as inputs, without the 1 of the bias."""
        return self.unscale[:, :-1] if self.bias else self.unscale

    def to(self, dtype: torch.dtype) -> "Span":
        ends = tuple(end.to(dtype) for end in self.ends)
        unscale, noise = self.unscale.to(dtype), self.noise.to(dtype)
        return replace(self, rows=self.rows.to(dtype), ends=ends, unscale=unscale, noise=noise)

    def on(self, device: torch.device) -> "Span":
        ends = tuple(end.to(device) for end in self.ends)
        unscale, noise, units = self.unscale.to(device), self.noise.to(device), self.units.to(device)
        return replace(self, rows=self.rows.to(device), ends=ends, unscale=unscale, noise=noise, units=units)

    def without(self, units: Bool[Tensor, " u"]) -> "Span":
        """The same span, on fewer units."""
        ends = tuple(end[~units] for end in self.ends)
        return replace(self, rows=self.rows[~units], ends=ends, units=self.units[~units])

    def columns(self, duals: Float[Tensor, "m r"]) -> Float[Tensor, "m u"]:
        """Y q, a column of C for each true dual."""
        return duals @ self.rows.T

    def tolerance(self, duals: Float[Tensor, "m r"]) -> Float[Tensor, "m 1"]:
        """How far from zero rounding brings an entry of Y q that is zero; all entries have mean square 1."""
        return (duals * self.noise).norm(dim=1, keepdim=True).clamp_min(self.leak)

    def depth(self, points: Float[Tensor, "m r"]) -> Float[Tensor, "m u"]:
        """How far below zero the units are at all known ends, over the median preactivation: > 0 is silent."""
        highest = (points @ self.ends[0].T).neg_()
        size = highest.abs()
        for end in self.ends[1:]:
            values = (points @ end.T).neg_()
            size = values.abs()
            highest = torch.minimum(highest, values)
        if not self.h:
            return highest
        return highest / size.detach().median(dim=1, keepdim=True).values.clamp_min(torch.finfo(points.dtype).tiny)

    def fires_throughout(self, points: Float[Tensor, "m r"], margin: float) -> Bool[Tensor, "m u"]:
        """Which units fire clearly at all known ends: they cannot have zeros."""
        fires = torch.ones(len(points), self.h, dtype=torch.bool, device=points.device)
        for end in self.ends if self.h else ():
            values = points @ end.T
            fires &= values > margin * values.abs().median(dim=1, keepdim=True).values
        return fires

    def facing(self, points: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        """Rows of norm 1. With a bias the last coordinate of x̃ is 1, which tells the sign."""
        if self.bias:
            points = points * torch.sign(points @ self.unscale[:, -1])[:, None]
        return points / points.norm(dim=1, keepdim=True).clamp_min(torch.finfo(points.dtype).tiny)

    def inputs(self, points: Float[Tensor, "m r"]) -> Float[Tensor, "m d"]:
        """The inputs themselves; without a bias only their directions, at norm 1."""
        extended = points @ self.unscale
        if self.bias:
            return extended[:, :-1] / extended[:, -1:]
        return extended / extended.norm(dim=1, keepdim=True)


def open_span(states: LayerStates, shown: Spectrum, used: Bool[Tensor, " h"]) -> tuple[Span, Span]:
    """The span on the units that the attack may use, and on the others, which are kept for the verdict.

    Units that did not change say nothing of anybody and are left out of both.
    """
    change = states.target.double()
    if states.start is not None and shown.scale != states.taken:
        change = change - (shown.scale - states.taken) * states.start.double()
    alive = change.norm(dim=1) > ALIVE * shown.noise * change.shape[1] ** 0.5
    size = shown.values[: shown.rank] / int(used.sum()) ** 0.5
    unscale = size[:, None] * shown.directions.T
    edge = shown.noise * (int(used.sum()) ** 0.5 + change.shape[1] ** 0.5)

    def part(chosen: Bool[Tensor, " h"]) -> Span:
        units = (chosen & alive).nonzero()[:, 0]
        ends = tuple(end[units].double() @ unscale.T for end in states.ends)
        rows = change[units] @ shown.directions / size
        return Span(rows, ends, unscale, shown.noise / size, units, states.bias, edge, states.leak)

    return part(used), part(~used)


def batches(span: Span, many: int) -> list[slice]:
    """As many places at a time as memory is meant for."""
    size = max(1, BATCH_NUMBERS // (span.r * (span.h + span.r)))
    return [slice(first, min(first + size, many)) for first in range(0, many, size)]


def require_layers(observation: Observation) -> tuple[LayerStates, ...]:
    found = layers_of(observation)
    if not found:
        raise UsageError(
            "expected two states of a dense layer with ReLU that reads the inputs, found none in this observation; "
            "give the weights before training (--initial, or exhume train ... --knows-first-layer), or a checkpoint "
            "with the optimiser's state or a moving average"
        )
    return found


def silent_bytes(observation: Observation) -> int:
    """What the attack takes at least: five copies of the layer in float64 and a batch of Gram matrices."""
    found = layers_of(observation)
    return 0 if not found else 5 * 8 * found[0].target.numel() + 8 * BATCH_NUMBERS
