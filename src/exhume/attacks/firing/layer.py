"""What the attack on firing patterns is given: the rows of one layer and of the head behind it, in units of their size.

    ΔW̃_k = Σ_i C_ki x̃_i            the change of unit k, exact for gradient descent, x̃ = (x, 1)
    C_ki ≈ fires_ki (W₂(0)_k · a_i + ΔW₂_k · b_i)      its error signals, while the head moved from W₂(0) by ΔW₂
    ΔW₂_k ≈ Σ_i a_i φ(w̃_k · x̃_i)   the change of the head, with the preactivations halfway

The second line has 2k unknown numbers per sample where C has one per unit. It is not exact, and the third is nearly so:
the attack finds out how far each can be relied on.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.foundation.distinct_outputs import distinct_outputs
from exhume.attacks.foundation.spectrum import Spectrum
from exhume.errors import UsageError
from exhume.layer_states import LayerStates
from exhume.observation import Observation

NORMAL_MEDIAN = 0.67  # of the absolute value of a standard normal variable: the usual preactivation


@dataclass(frozen=True, eq=False, repr=False)
class FiringLayer:
    """`halfway` and `moved`: W̃ in the middle of training, and how far it went. `change` and `head_change` have mean
    square 1, and so have the columns of `signals`, [W₂(0), ΔW₂]. `head_scale` takes the first k coefficients of a
    candidate to what they are in the head's change. `basis` takes candidates to inputs x̃ (None: they are inputs)."""

    halfway: Float[Tensor, "h c"]
    moved: Float[Tensor, "h c"]
    change: Float[Tensor, "h c"]
    signals: Float[Tensor, "h s"]
    head_change: Float[Tensor, "h k"]
    head_scale: Float[Tensor, " k"]
    leak: float
    bias: bool
    basis: Float[Tensor, "d c"] | None = None

    @property
    def h(self) -> int:
        return len(self.halfway)

    @property
    def dimensions(self) -> int:
        return self.halfway.shape[1]

    @property
    def outputs(self) -> int:
        return self.head_change.shape[1]

    @property
    def usual(self) -> float:
        """The usual size of a preactivation of a candidate of norm 1."""
        return float(self.halfway.norm(dim=1).median()) / self.dimensions**0.5 * NORMAL_MEDIAN

    def inputs(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        """x of candidates that stand for multiples of x̃; their directions where the layer has no bias."""
        whole = candidates if self.basis is None else candidates @ self.basis.T
        return whole[:, :-1] / whole[:, -1:] if self.bias else whole / whole.norm(dim=1, keepdim=True)

    def facing(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
        """With a positive last coordinate, as x̃ has it."""
        if not self.bias:
            return candidates
        last = candidates[:, -1:] if self.basis is None else candidates @ self.basis[-1:].T
        return torch.where(last < 0, -candidates, candidates)


def firing_layer(
    observation: Observation, states: LayerStates, shown: Spectrum, units: Int[Tensor, " u"], device: torch.device
) -> FiringLayer:
    """These units of the layer. Where its change shows the span of the samples, they are looked for inside it."""
    head, change = observation.published_head, observation.weights
    if head is None or change.shape[1] != states.h:
        raise UsageError(f"expected the head behind {states.describe()} before and after training, found other layers")
    units = units.to(device)
    before, after = (end.to(device, torch.float64)[units] for end in (states.ends[0], states.ends[-1]))
    basis = shown.directions.to(device, torch.float64) if shown.exact else None
    halfway, moved = (before + after) / 2, after - before
    if basis is not None:
        halfway, moved = halfway @ basis, moved @ basis
    head, change = (rows.to(device, torch.float64)[:, units] for rows in (head, change))
    distinct = distinct_outputs(change)
    own = distinct.rows.T
    signals = torch.cat([(head - change).T @ distinct.directions, own], dim=1)
    sizes = signals.square().mean(dim=0).sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    size, head_size = float(moved.square().mean().sqrt()), float(own.square().mean().sqrt())
    return FiringLayer(
        halfway,
        moved,
        moved / size,
        signals / sizes,
        own / head_size,
        size / sizes[: own.shape[1]] / head_size,
        observation.ridge.activation.leak,
        states.bias,
        basis,
    )


def left_by_firing(layer: FiringLayer, candidates: Float[Tensor, "m c"]) -> float:
    """How much of the units' change lies off the candidates that they fired on at either end of training.

    Over what candidates at random would leave: 1 where they say nothing of the units, 0 where they explain them."""
    ends = layer.halfway - layer.moved / 2, layer.halfway + layer.moved / 2
    fires = (ends[0] @ candidates.T > 0) | (ends[1] @ candidates.T > 0)
    left, by_chance = 0.0, 0.0
    for change, on in zip(layer.change, fires, strict=True):
        spare = max(layer.dimensions - int(on.sum()), 0)
        if spare and bool(on.any()):
            basis = torch.linalg.qr(candidates[on].T).Q
            change_off = change - basis @ (basis.T @ change)
        else:
            change_off = change
        if spare:
            left += float(change_off.square().sum())
            by_chance += float(change.square().sum()) * spare / layer.dimensions
    return min(left / by_chance, 1.0) if by_chance > 0 else 1.0
