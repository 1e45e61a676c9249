"""Where the first layer came from: the way of its training, walked again from candidates for the samples.

Only the trained layer W̃(T) = [W₁, b₁] is known, and the head before and after training, W₂(0) and W₂(0) + ΔW₂. For
samples x̃_i = (x_i, 1) with error signals a_i, which are taken to be the same all along the way s from 0 to 1,

    dW̃_k / ds  = Σ_i (W₂(s)_k · a_i) φ'(w̃_k · x̃_i) x̃_iᵀ,      W₂(s) = W₂(0) + s ΔW₂,
    ΔW₂_k      = Σ_i a_i ∫ φ(w̃_k(s) · x̃_i) ds.

So candidates say what W̃(0) must have been, and the features along the way explain the change of the head far better
than those at its end. A unit that fell silent on a sample during training is walked back wrongly: nothing in its
trained row remembers that sample. Fits therefore give less weight to units that they explain badly (`fit.py`).

φ is homogeneous, so the scale of x̃_i goes to a_i, and both products above stay what they are.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

MOMENTS = 4  # of the way; two leave 1.3 times the error of the features at the true samples, eight 0.9 times
SHARE = 0.5  # of what a walk ends off that the start is moved by; all of it swings where features moved far


@dataclass(frozen=True, eq=False, repr=False)
class TrainedLayer:
    """What is known. Outputs of the head that repeat each other are left out."""

    end: Float[Tensor, "h c"]
    head: Float[Tensor, "h q"]
    """W₂(0)ᵀ."""
    change: Float[Tensor, "h q"]
    """ΔW₂ᵀ."""
    leak: float

    @property
    def dimensions(self) -> int:
        return self.end.shape[1]

    @property
    def equations(self) -> int:
        return self.change.numel()

    def slopes(self, rows: Float[Tensor, "h c"], candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m h"]:
        """φ'(w̃_k · x̃_i)."""
        return torch.where(candidates @ rows.T > 0, 1.0, self.leak)


@dataclass(frozen=True, eq=False, repr=False)
class Way:
    """The layer before training, and at moments between then and its end."""

    layer: TrainedLayer
    start: Float[Tensor, "h c"]
    moments: tuple[Float[Tensor, "h c"], ...]

    @classmethod
    def unknown(cls, layer: TrainedLayer) -> "Way":
        """As if the layer had never moved."""
        return cls(layer, layer.end, (layer.end,))

    def walked_back(self, candidates: Float[Tensor, "m c"], coefficients: Float[Tensor, "m q"]) -> "Way":
        """The way from this start by these error signals, and a better start: what the end is off is taken from it."""
        rows, moments, step = self.start, [], 1 / MOMENTS
        for moment in range(MOMENTS):
            head = self.layer.head + (moment + 0.5) * step * self.layer.change
            signals = coefficients @ head.T

            def moved(at: Tensor, by: float, signals: Tensor = signals, origin: Tensor = rows) -> Tensor:
                return origin + by * (signals * self.layer.slopes(at, candidates)).T @ candidates

            middle = moved(rows, step / 2)
            moments.append(middle)
            rows = moved(middle, step)
        return Way(self.layer, self.start - SHARE * (rows - self.layer.end), tuple(moments))

    def features(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m h"]:
        """∫ φ(w̃_k(s) · x̃_i) ds."""
        total = sum((candidates @ rows.T) * self.layer.slopes(rows, candidates) for rows in self.moments)
        assert isinstance(total, Tensor)
        return total / len(self.moments)

    def gradients(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m h c"]:
        """Those of the features: ∫ φ'(w̃_k(s) · x̃_i) w̃_k(s) ds."""
        total = sum(self.layer.slopes(rows, candidates)[:, :, None] * rows for rows in self.moments)
        assert isinstance(total, Tensor)
        return total / len(self.moments)

    def pulled_back(self, candidates: Float[Tensor, "m c"], slopes: Float[Tensor, "m h"]) -> Float[Tensor, "m c"]:
        """Σ_k slopes_ik × the gradient of feature k of candidate i."""
        total = sum((slopes * self.layer.slopes(rows, candidates)) @ rows for rows in self.moments)
        assert isinstance(total, Tensor)
        return total / len(self.moments)
