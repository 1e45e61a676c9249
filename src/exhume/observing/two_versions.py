"""What two released versions of a ridge model tell of the records between them.

A ridge model θ = (ΦᵀΦ + λI)⁻¹ΦᵀY over known features φ is fitted again after one record (φ, y) is deleted, or added.
With H = ΦᵀΦ + λI of the larger of the two data sets,

    H (θ_new − θ_old) = ± φ (y − f(x))ᵀ,        f the version without the record:

the change is of rank one, and H turns it into the features of that record (Bertran et al. 2024). Several records change
it by the sum of such terms, of as many dimensions.

An attacker does not have H. Public records of the same kind give second moments S = B diag(s) Bᵀ of the features, and
H/n ≈ S + εI with ε = λ/n. In the coordinates B of public features, with δ = Bᵀ(θ_new − θ_old),

    (s_j + ε) δ_j  ≈  (y − f) b_jᵀφ(x) + noise.

The noise comes from S, which is not that of the training records: it is as large along b_j as features vary there. So
both sides are divided by √(s_j + ε₀): what is left is a network ψ(x) = diag(s + ε₀)^(−1/2) Bᵀ φ(Vx + b) whose head is
a combination of the changed records, which every attack on networks takes. Outside of the public records' span nothing
is known of H, and nothing is used.

ε is chosen by likelihood: b_jᵀφ(x) of a record has mean square s_j, so δ_j has s_j σ² / (s_j + ε)², and the ε (and σ)
that make δ most likely are taken.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.errors import ExhumeError, UsageError
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures

FLOOR = 1e-3
"""ε₀ over the mean square of a feature. On digits and 4,096 features deleted records come back with cosines of 0.9989
to 0.9992; with 0.1 of 0.9967 to 0.9985."""
NEGLIGIBLE = 1e-10
"""Of the largest second moment: directions that public records do not show."""
PENALTIES = tuple(10.0 ** (exponent / 4) for exponent in range(-32, 17))
"""ε over the mean square of a feature, from 1e-8 to 1e4."""
FEWEST_PUBLIC = 20
SMALL, GAP = 1e-3, 30.0
"""A drop of singular values by this factor, to a share this small, is the edge to rounding."""


class WhitenedFeatures(nn.Module):
    """ψ(x) = T φ(Vx + b)."""

    def __init__(self, features: RidgeFeatures, turn: Float[Tensor, "q p"]) -> None:
        super().__init__()
        self._features = features
        self.turn = nn.Parameter(turn, requires_grad=False)

    def forward(self, inputs: Float[Tensor, "m d"]) -> Float[Tensor, "m q"]:
        rows = self._features.rows.block(0, self._features.p).to(inputs)
        bias = 0 if self._features.bias is None else self._features.bias.to(inputs)
        return self._features.activation.value(inputs @ rows.T + bias) @ self.turn.T


@dataclass(frozen=True, eq=False, repr=False)
class TwoVersions:
    """`weights` (one row per dimension of the change) are combinations of the changed records' features."""

    features: ModuleFeatures
    weights: Float[Tensor, "r q"]
    penalty: float
    """λ/n, as it was chosen."""
    outputs: int

    @property
    def dimensions(self) -> int:
        return len(self.weights)


def between_versions(
    features: RidgeFeatures, old: Float[Tensor, "k p"], new: Float[Tensor, "k p"], public: Float[Tensor, "N d"]
) -> TwoVersions:
    if old.shape != new.shape:
        raise ExhumeError(f"expected two versions of one shape, found {list(old.shape)} and {list(new.shape)}")
    if len(public) < FEWEST_PUBLIC:
        raise UsageError(f"expected at least {FEWEST_PUBLIC} public records, found {len(public)}")
    change = new.double() - old.double()
    if not bool(change.any()):
        raise ExhumeError("expected two versions that differ, found the same weights twice")
    directions = row_space(change)
    moments, axes = second_moments(features(public.to(features.dtype or new.dtype)).double())
    scale = float(moments.sum()) / features.p
    inside = directions @ axes
    penalty = scale * max(PENALTIES, key=lambda ridge: likelihood(inside, moments, ridge * scale))
    white = (moments + FLOOR * scale).rsqrt()
    target = inside * (moments + penalty) * white
    network = WhitenedFeatures(features, (axes * white).T.float())
    size = float(target.norm(dim=1).max())
    return TwoVersions(
        ModuleFeatures(network, features.d, len(moments), kin=public),
        (target / size).float(),
        penalty,
        len(new),
    )


def row_space(change: Float[Tensor, "k p"]) -> Float[Tensor, "r p"]:
    """The rows that are not rounding, by falling size."""
    _, values, rows = torch.linalg.svd(change, full_matrices=False)
    falls = [
        (at + 1, float(values[at] / values[at + 1].clamp_min(torch.finfo(torch.float64).eps * float(values[0]))))
        for at in range(len(values) - 1)
        if values[at + 1] <= SMALL * values[0]
    ]
    rank, fall = max(falls, key=lambda found: found[1], default=(len(values), math.inf))
    rank = rank if fall >= GAP else len(values)
    return rows[:rank] * values[:rank, None]


def second_moments(values: Float[Tensor, "N p"]) -> tuple[Float[Tensor, " q"], Float[Tensor, "p q"]]:
    """s and B by the smaller of the two Gram matrices."""
    n, p = values.shape
    gram = values @ values.T / n if n < p else values.T @ values / n
    moments, vectors = torch.linalg.eigh(gram)
    kept = moments > NEGLIGIBLE * moments[-1]
    moments, vectors = moments[kept], vectors[:, kept]
    return moments, values.T @ vectors / (n * moments).sqrt() if n < p else vectors


def likelihood(inside: Float[Tensor, "r q"], moments: Float[Tensor, " q"], penalty: float) -> float:
    """Of all rows, each with a σ of its own."""
    spread = moments.sqrt() / (moments + penalty)
    variance = (inside / spread).square().mean(dim=1)
    return -float(inside.shape[1] * variance.log().sum() / 2 + len(inside) * spread.log().sum())
