"""Was this record among the training data of a head? Its embedding against the change of the weights.

The change of a head on a frozen extractor is Δ = Aᵀ Φ (k × h). If z is the embedding of a training record with
coefficients a ∈ R^k, then Δ = a zᵀ + (the others), and else it is the others alone. Let embeddings have covariance Σ
around their mean μ; the others add up to Gaussian rows with covariance S ⊗ Σ (S = AᵀA) around c μᵀ. The maximum of the
likelihood over a, against a = 0, is

    z̃ᵀ Σ⁻¹ Δ̃ᵀ S⁻¹ Δ̃ Σ⁻¹ z̃ / z̃ᵀ Σ⁻¹ z̃,        z̃ = z − μ,  Δ̃ = Δ − c μᵀ,

and with the estimate S = Δ̃ Σ⁻¹ Δ̃ᵀ / h it is h cos²ψ, where ψ is the angle between z and the row space of Δ *after
whitening with Σ*. For other records h cos²ψ is a χ² with k degrees of freedom, for training records its mean grows by
about k h / n: p = k h weights tell n records from others where p is well above n (reconstruction needs p ≈ d n).
Without whitening, the few directions in which all embeddings vary drown the rest: the plain distance to the span is
hardly better than chance.

Σ comes from the records themselves, training records or not. All of them enter it alike, so ranks among records that
were not trained on remain exact. It needs a ridge, Σ + ε t I with t the mean variance of a feature: with fewer records
than features, and where the head's other training data are not among the records. ε is what makes the rows of Δ most
likely,

    ℓ(ε) = −(h/2) log det(Δ̃ Σ_ε⁻¹ Δ̃ᵀ) − (k/2) log det Σ_ε,

a profile over S in which the spectrum of the weights decides. Where W(0) is unknown and small, it is more white noise
in Δ, and ε grows by itself.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.probes.embedding_span import EmbeddingSpan
from exhume.errors import UsageError

RIDGES = tuple(10.0 ** (exponent / 2) for exponent in range(-12, 5))
NEGLIGIBLE = 1e-12  # of the largest variance
CONSTANT = 1e-6  # of the largest entry: a feature that varies less is the same for all records


@dataclass(frozen=True, eq=False, repr=False)
class Alignment:
    """cos²ψ for each record, from 0 to 1, and the ridge ε that was chosen."""

    cosine_squared: Float[Tensor, " m"]
    ridge: float

    @property
    def score(self) -> Float[Tensor, " m"]:
        """−log sin²ψ: additive evidence, without bound for embeddings inside the span."""
        inside = self.cosine_squared.clamp(0, 1 - torch.finfo(torch.float64).eps)
        return -torch.log1p(-inside)


@dataclass(frozen=True, eq=False, repr=False)
class _Axes:
    """Centred embeddings and a basis of the row space in the principal axes of the embeddings.

    Outside these axes, in `outside` further dimensions, embeddings have no part, and rows of the weights may have one.
    """

    coordinates: Float[Tensor, "m q"]
    variances: Float[Tensor, " q"]
    rows: Float[Tensor, "r q"]
    rows_outside: Float[Tensor, "r r"]
    """Inner products of what the rows have outside."""
    mean: Float[Tensor, " q"] | None
    """None where the part of the mean in the weights was known and is gone."""
    mean_outside: float
    cross_outside: Float[Tensor, " r"]
    outside: int

    @property
    def scale(self) -> float:
        """t: the mean variance of a feature."""
        return float(self.variances.sum()) / (len(self.variances) + self.outside)


@dataclass(frozen=True, eq=False, repr=False)
class _Whitened:
    rows: Float[Tensor, "r q"]
    gram: Float[Tensor, "r r"]
    inverse: Float[Tensor, " q"]
    likelihood: float


def align(span: EmbeddingSpan, embeddings: Float[Tensor, "m p"]) -> Alignment:
    """cos²ψ of all records, which also give the covariance; the more there are, the better."""
    if len(embeddings) < 3:
        raise UsageError(f"expected at least 3 records to learn how embeddings vary, found {len(embeddings)}")
    pool = _in_principal_axes(span.basis, embeddings.double())
    if pool is None:
        return Alignment(torch.zeros(len(embeddings), dtype=torch.float64), RIDGES[0])
    ridge, white = max(((ridge, _whiten(pool, ridge)) for ridge in RIDGES), key=lambda tried: tried[1].likelihood)
    products = (pool.coordinates * white.inverse) @ white.rows.T
    explained = (products @ _inverse(white.gram) * products).sum(dim=1)
    lengths = (pool.coordinates.square() * white.inverse).sum(dim=1)
    cosines = explained / torch.where(lengths > 0, lengths, 1.0)
    return Alignment(cosines.clamp(0, 1), ridge)


def _in_principal_axes(basis: Float[Tensor, "r p"], embeddings: Float[Tensor, "m p"]) -> _Axes | None:
    """None if all embeddings are the same."""
    mean = embeddings.mean(dim=0)
    centred = embeddings - mean
    varying = centred.abs().amax(dim=0) > CONSTANT * embeddings.abs().max()
    if not varying.any():
        return None
    rows, known = basis, False
    fixed = mean[~varying]
    if torch.any(fixed):  # a constant feature carries nothing but the sum of the coefficients, so c is known
        share = basis[:, ~varying] @ fixed / fixed.square().sum()
        rows, known = basis - share[:, None] * mean, True
    centred, rows, mean = centred[:, varying], rows[:, varying], mean[varying]
    variances, axes = _principal_axes(centred)
    inside = rows @ axes.T
    mean_inside = axes @ mean
    outside = centred.shape[1] - len(variances)
    return _Axes(
        coordinates=centred @ axes.T,
        variances=variances,
        rows=inside,
        rows_outside=rows @ rows.T - inside @ inside.T,
        mean=None if known else mean_inside,
        mean_outside=max(0.0, float(mean.square().sum() - mean_inside.square().sum())) if outside else 0.0,
        cross_outside=(rows @ mean - inside @ mean_inside) * bool(outside),
        outside=outside,
    )


def _principal_axes(centred: Float[Tensor, "m p"]) -> tuple[Float[Tensor, " q"], Float[Tensor, "q p"]]:
    """Variances and axes, by the smaller of the two Gram matrices."""
    m, p = centred.shape
    gram = centred.T @ centred / m if p <= m else centred @ centred.T / m
    variances, vectors = torch.linalg.eigh(gram)
    kept = variances > NEGLIGIBLE * variances[-1]
    variances, vectors = variances[kept], vectors[:, kept]
    axes = vectors.T if p <= m else vectors.T @ centred / (m * variances).sqrt()[:, None]
    return variances, axes


def _whiten(pool: _Axes, ridge: float) -> _Whitened:
    floor = ridge * pool.scale
    inverse = 1 / (pool.variances + floor)
    rows, outside = pool.rows, pool.rows_outside
    if pool.mean is not None:  # c by generalised least squares
        weight = float((pool.mean.square() * inverse).sum()) + pool.mean_outside / floor
        share = ((rows * inverse) @ pool.mean + pool.cross_outside / floor) / max(weight, 1e-300)
        rows = rows - share[:, None] * pool.mean
        mixed = share[:, None] * pool.cross_outside
        outside = outside - mixed - mixed.T + share[:, None] * share * pool.mean_outside
    gram = (rows * inverse) @ rows.T + (outside / floor if pool.outside else 0)
    eigenvalues = torch.linalg.eigvalsh(gram)
    spread = float(eigenvalues.clamp_min(NEGLIGIBLE * float(eigenvalues[-1])).log().sum())
    volume = float(torch.log(pool.variances + floor).sum()) + pool.outside * math.log(floor)
    features = len(pool.variances) + pool.outside
    likelihood = -0.5 * features * spread - 0.5 * len(rows) * volume
    return _Whitened(rows, gram, inverse, likelihood)


def _inverse(gram: Float[Tensor, "r r"]) -> Float[Tensor, "r r"]:
    return torch.linalg.pinv(gram, rtol=NEGLIGIBLE, hermitian=True)
