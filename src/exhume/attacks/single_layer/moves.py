"""What small moves make up for, where there are too many unknowns for the factors of `linearised.py`.

What is left of a change c is min over dx of ||P c − P J dx||², by conjugate gradients with the preconditioner M ⊗ S of
`probing.py`, for several changes at once. It only falls on the way, and where rows are as good as random by a fixed
share a product; it ends where a product takes less than a hundredth of it away.

A product is 4 p m d r operations for each change, so beyond `MOST_MOVED` unknowns coefficients alone may change.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.retraction import tangent
from exhume.attacks.foundation.unknowns import TINY
from exhume.attacks.single_layer.gauss_newton import away_from_kinks
from exhume.attacks.single_layer.linearised import Explanation, explanation
from exhume.attacks.single_layer.span import Fit, SpanLoss

MOST_MOVED = 3000
ROWS_EACH = 4  # equations for each unknown
PRODUCTS = 60
STILL_FALLING = 0.01
AT_ONCE = 2**22  # numbers of m × p: 32 MiB
RIDGE = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class Moved(Explanation):
    """`slopes`: φ' of each candidate. `metric` and `moment`: M⁻¹ and S⁻¹."""

    slopes: Float[Tensor, "m p"]
    metric: Float[Tensor, "m m"]
    moment: Float[Tensor, "d d"]
    free_norms: bool

    @classmethod
    def at(cls, loss: SpanLoss, fit: Fit) -> "Moved":
        plain = explanation(loss, fit, ROWS_EACH * len(fit.candidates) * loss.unknowns // loss.outputs)
        preactivations = torch.cat([block for _, block in plain.features.preactivation_blocks(plain.candidates)], dim=1)
        with torch.no_grad():
            slopes = plain.features.activation.derivative(preactivations) * away_from_kinks(loss, preactivations)
        metric = (plain.amplitudes @ plain.amplitudes.T) * (slopes @ slopes.T)
        moment = plain.rows.T @ plain.rows
        known = {field.name: getattr(plain, field.name) for field in fields(plain)}
        return cls(**known, slopes=slopes, metric=_inverse(metric), moment=_inverse(moment), free_norms=loss.free_norms)

    def not_made_up(self, changes: Float[Tensor, "c rp"]) -> Float[Tensor, "c rp"]:
        few = max(1, AT_ONCE // self.slopes.numel())
        return torch.cat([self._least(some) for some in changes.split(few)]) if len(changes) else changes

    def _least(self, changes: Float[Tensor, "c rp"]) -> Float[Tensor, "c rp"]:
        left = super().not_made_up(changes)
        before = left.square().sum(dim=1)
        direction, product = None, before
        for _ in range(PRODUCTS):
            pulled = self._pull(left)
            conditioned = self._condition(pulled)
            new = (pulled * conditioned).sum(dim=(1, 2))
            turn = new / product.clamp_min(TINY)
            direction = conditioned if direction is None else conditioned + turn[:, None, None] * direction
            product = new
            image = super().not_made_up(self._push(direction))
            left = left - (product / image.square().sum(dim=1).clamp_min(TINY))[:, None] * image
            now = left.square().sum(dim=1)
            if bool((now > (1 - STILL_FALLING) * before).all()):
                break
            before = now
        return left

    def _push(self, moves: Float[Tensor, "c m d"]) -> Float[Tensor, "c rp"]:
        seen = self.slopes * (moves @ self.rows.T)
        return torch.einsum("mr,cmp->crp", self.amplitudes, seen).flatten(1)

    def _pull(self, left: Float[Tensor, "c rp"]) -> Float[Tensor, "c m d"]:
        each = torch.einsum("mr,crp->cmp", self.amplitudes, left.reshape(len(left), -1, self.slopes.shape[1]))
        return self._allowed((self.slopes * each) @ self.rows)

    def _condition(self, moves: Float[Tensor, "c m d"]) -> Float[Tensor, "c m d"]:
        return self._allowed(self.metric @ moves @ self.moment)

    def _allowed(self, moves: Float[Tensor, "c m d"]) -> Float[Tensor, "c m d"]:
        if self.free_norms:
            return moves
        return torch.stack([tangent(some, self.candidates) for some in moves])


def _inverse(matrix: Float[Tensor, "a a"]) -> Float[Tensor, "a a"]:
    scale = matrix.diagonal().clamp_min(TINY).rsqrt()
    balanced = matrix * scale[:, None] * scale + RIDGE * torch.eye(len(matrix)).to(matrix)
    return torch.linalg.inv(balanced) * scale[:, None] * scale
