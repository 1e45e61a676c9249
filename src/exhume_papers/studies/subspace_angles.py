"""How far the span that weights show is from that of the data: a lemma with a rate, and what is measured.

**Lemma** (derived here). Let M (h × d) have rank r and row space V: the change of a first layer by gradient descent,
with V the span of the data. Let M̂ = M + N be what is seen of it, with singular values σ̂₁ ≥ σ̂₂ ≥ ..., and V̂, Û its
r leading right and left singular vectors. Then the largest principal angle between V and V̂ has

    sin θ ≤ ‖N‖ / σ̂_r.                                                                                              (1)

If the entries of N are independent Gaussians of deviation s, then with probability 1 − 4 e^{−t²/2}

    sin θ ≤ (s / σ̂_r) [ √d + √r + t + s (√h + √d + t)² / σ̂_r ].          (2)

*Proof.* V̂ = M̂ᵀ Û Σ̂⁻¹ and the columns of Mᵀ lie in V, so P⊥ V̂ = P⊥ Nᵀ Û Σ̂⁻¹: that is (1). For (2) let U be the
column space of M. Û = P_U Û + P_U⊥ Û, and P_U⊥ Û = P_U⊥ N V̂ Σ̂⁻¹ has a norm of at most ‖N‖ / σ̂_r by the same
argument. So ‖P⊥ Nᵀ Û‖ ≤ ‖P⊥ Nᵀ P_U‖ + ‖N‖² / σ̂_r, where the first is the norm of a Gaussian (d − r) × r matrix and
‖N‖ that of an h × d one. ∎

So the angle is proportional to the rounding of the weights as long as that is small, and 0 for exact weights whatever
the width. It does not fall with the width: the wider a network, the less its first layer moves, and σ̂_r falls. Of
random features, whose first layer does not move at all, the span comes from moments of the weights, means over p rows
that deviate by √(d/p): with Davis-Kahan that is the rate of the angle.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.subspace.moments import moment_subspace
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.features.rows import hold
from exhume_papers.studies.principal_angles import principal_angles
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

TAIL = 3.0  # t: the bound fails in at most 4 % of the cases, and in far fewer


@dataclass(frozen=True)
class AngleAndBound:
    angle: float
    """The sine of the largest principal angle."""
    bound: float
    """That of (2)."""


def seen_with_noise(
    change: Float[Tensor, "h d"], noise: Float[Tensor, "h d"], deviation: float, rank: int
) -> AngleAndBound:
    """The angle between the row spaces of a change of rank r and of the same with noise."""
    h, d = change.shape
    truth = torch.linalg.svd(change, full_matrices=False).Vh[:rank].T
    seen = torch.linalg.svd(change + noise, full_matrices=False)
    least = float(seen.S[rank - 1])
    whole = deviation * (math.sqrt(h) + math.sqrt(d) + TAIL)
    bound = (deviation * (math.sqrt(d) + math.sqrt(rank) + TAIL) + whole**2 / least) / least
    return AngleAndBound(float(principal_angles(truth, seen.Vh[:rank].T)[0].sin()), bound)


@dataclass(frozen=True)
class RoundedLayer:
    """The first layer of a trained two-layer network, published in `dtype`; its start is known exactly."""

    dimension: int
    ambient: int
    samples: int
    width: int
    dtype: torch.dtype
    seed: int

    def run(self) -> AngleAndBound:
        data = load(
            DataConfig(name="sphere", samples=self.samples, dim=self.ambient, subspace=self.dimension, seed=self.seed)
        )
        config = TwoLayerConfig(width=self.width, seed=self.seed, knows_first_layer=True)
        observation = train_two_layer(config, data).observation
        assert observation.initial_rows is not None
        after, before = (rows.block(0, rows.p).double() for rows in (observation.ridge.rows, observation.initial_rows))
        # the change as real numbers would have it: float32 has left its own rounding outside the span
        basis = torch.linalg.svd(data.inputs.double(), full_matrices=False).Vh[: self.dimension].T
        change = (after - before) @ basis @ basis.T
        noise = (before + change).to(self.dtype).double() - (before + change)
        return seen_with_noise(change, noise, float(noise.square().mean().sqrt()), self.dimension)


@dataclass(frozen=True)
class MomentAngle:
    """Random features with ReLU: the span of the n leading directions of the weights' moments."""

    ambient: int
    samples: int
    width: int
    seed: int

    def run(self) -> float:
        """The sine of the largest angle between that span and the samples'."""
        data = load(DataConfig(name="sphere", samples=self.samples, dim=self.ambient, seed=self.seed))
        data = replace(data, labels=torch.ones_like(data.labels))  # coefficients of one size: a gap that stays
        config = RandomFeaturesConfig(params=self.width, seed=self.seed)
        observation = train_random_features(config, data, draw_rows(config, self.ambient)).observation
        features = replace(observation.ridge, rows=hold(observation.ridge.rows))
        stream = torch.Generator().manual_seed(self.seed)
        found = moment_subspace(SpanLoss(features, observation.weights), self.samples, stream)
        return float(principal_angles(found.basis, data.inputs.T)[0].sin())
