"""How far candidates are from the samples, and how far random candidates would be.

The reconstruction error is the paper's Eq. 12, with the better sign for each sample,

    ρ = min over one-to-one π and signs s of  1/(n √d) Σ_i ‖x_i − s_i x^_π(i)‖₂,

where a sample that is left without a candidate (m < n) counts 1, as if the candidate were 0 and the sample had norm √d.
All m candidates take part as far as there are samples for them: below m = n a candidate farther than √d from every
sample left makes ρ worse than silence would.

0 is perfect. For rows of norm √d a random guess is at about √2 in high dimension, less in low dimension or with more
candidates than samples to choose from: hence `chance_error`, the number to print beside ρ.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.errors import UsageError
from exhume.metrics.matching import UNMATCHED_DISTANCE, Matching, assign, check_rows, match, match_by_norm, to_norm
from exhume.shown import Shown

if TYPE_CHECKING:
    from exhume.picture_grid import PictureGrid

FeatureBlocks = Iterable[tuple[Float[Tensor, "n _"], Float[Tensor, "m _"]]]
"""Features of the samples and of the candidates for one block of rows of V after the other."""
RECOVERED_DISTANCE = 0.1
CHANCE_DRAWS = 16
CHANCE_STREAM = 0x6368616E6365
"""Sets the chance draws apart from data drawn with the same seed, which they would otherwise hit."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The rows behind an evaluation, as they were given and not copied: what its plot needs."""

    samples: Float[Tensor, "n d"] = field(repr=False)
    candidates: Float[Tensor, "m d"] = field(repr=False)
    image_shape: tuple[int, int, int] | None = None


@dataclass(frozen=True, repr=False)
class Evaluation(Shown):
    """A reconstruction held against the truth."""

    n: int
    """Samples."""
    m: int
    """Candidates."""
    error: float
    """rho, Eq. 12, with the better sign for each sample."""
    signed_error: float
    """rho without the freedom of signs."""
    chance_error: float
    """rho of as many random candidates."""
    signed_chance_error: float
    """rho of as many random candidates without the freedom of signs."""
    recovered_fraction: float
    """Share of the samples with a matched candidate closer than 0.1 √d."""
    span_residual: float | None
    """r, Eq. 167; None if no features were given."""
    matching: Matching
    """The pairs behind `error`."""
    pairs: Pairs | None = None
    """The rows themselves, where a plot may be asked for."""

    def plot(self, image_shape: tuple[int, int, int] | None = None, columns: int = 10) -> "PictureGrid":
        """True pictures above what was recovered of them, the closest first, each pair on the scale of the true one.

        Candidates are shown with the matched sign and at the norm of the sample; without one there is an even gray.
        """
        if self.pairs is None:
            raise UsageError(
                "expected an evaluation that has its rows, found numbers only; make it with exhume.evaluate"
            )
        from exhume.picture_grid import MOST_PICTURES, picture_grid, require_pictures

        shape = require_pictures(image_shape or self.pairs.image_shape, self.pairs.samples.shape[1])
        order = self.distances.argsort(stable=True)[:MOST_PICTURES]
        true, found = _aligned(self.pairs, self.matching, order)
        low, high = true.amin(dim=1, keepdim=True), true.amax(dim=1, keepdim=True)
        true, found = ((rows - low) / torch.where(high > low, high - low, 1.0) for rows in (true, found))
        found = torch.where(self.matching.matched[order][:, None], found, 0.5)
        bands = [("true", true.reshape(-1, *shape)), ("recovered", found.reshape(-1, *shape))]
        return picture_grid(bands, columns)

    def _lines(self) -> dict[str, str | int | float | None]:
        return {
            "samples": self.n,
            "candidates": self.m,
            "recovered": f"{round(self.recovered_fraction * self.n):,} of {self.n:,}",
            "error": self.error,
            "signed_error": self.signed_error,
            "chance_error": self.chance_error,
            "span_residual": self.span_residual,
        }

    def _remark(self) -> str:
        return "Errors are mean distances over the root of d: 0 is perfect, and chance is what random candidates reach."

    @property
    def distances(self) -> Float[Tensor, " n"]:
        """‖x_i − s_i x^_π(i)‖₂ / √d for each sample; their mean is `error`."""
        return self.matching.distance


def relative_errors(
    samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"], directions_only: bool = False
) -> Float[Tensor, " n"]:
    """‖x_i − x^_π(i)‖ / ‖x_i‖ after one-to-one matching, without freedom of signs; 1 for a sample left without one, or
    with none closer than its norm.

    >>> relative_errors(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 3.0]])).tolist()
    [0.2]
    >>> relative_errors(torch.ones(2, 3), torch.ones(0, 3)).tolist()
    [1.0, 1.0]
    """
    if directions_only:
        samples, candidates = to_norm(samples, 1.0), to_norm(candidates, 1.0)
    return match_by_norm(samples, candidates, sign_free=False).distance


def reconstruction_error(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> float:
    """ρ, Eq. 12, with the better sign for each sample.

    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> reconstruction_error(x, torch.tensor([[-1.0, 1.0], [1.0, 1.0]]))
    0.0
    """
    return match(samples, candidates, sign_free=True).distance.mean().item()


def signed_error(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> float:
    """ρ with every sign s_i = 1: a sample found with the wrong sign is an error of 2 ‖x_i‖ / √d.

    >>> signed_error(torch.tensor([[1.0, 1.0]]), torch.tensor([[-1.0, -1.0]]))
    2.0
    """
    return match(samples, candidates, sign_free=False).distance.mean().item()


def chance_error(
    samples: Float[Tensor, "n d"], m: int, seed: int, draws: int = CHANCE_DRAWS, signed: bool = False
) -> float:
    """The mean ρ (or signed ρ) of m candidates drawn uniformly from the sphere of radius √d, over `draws` draws."""
    errors = _chance_errors(samples, m, seed, draws)
    return errors.signed if signed else errors.sign_free


def recovered_fraction(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> float:
    """The share of samples whose matched candidate is closer than 0.1 √d, up to sign.

    The pairs are those of the assignment behind ρ. Where several assignments are equally good, which happens on a line
    (d = 1) and hardly elsewhere, one of them decides.
    """
    return _recovered_fraction(match(samples, candidates, sign_free=True))


def span_residual(feature_blocks: FeatureBlocks, p: int) -> float:
    """r = 1/(n √p) Σ_i ‖P⊥ φ(x_i)‖₂, Eq. 167: how much of the samples' features the candidates' span leaves out.

    Features come in blocks of rows of V, (φ(X V_b^T), φ(X^ V_b^T)), that are read once and need not fit in memory
    together. With the Gram matrices K = Φ^ Φ^T of the candidates and C = Φ Φ^T between the two,
    ‖P⊥ φ(x_i)‖² = ‖φ(x_i)‖² − c_i K⁺ c_i^T. Squares are subtracted, so the smallest residual that differs from 0 is
    about 1e-8 of the features' size.
    """
    squares, cross, gram = _accumulate(feature_blocks, p)
    # Features of unit length, so that the cutoff below is about directions and not about the sizes of the candidates.
    lengths = gram.diagonal().sqrt()
    scale = torch.where(lengths > 0, 1 / lengths, 0.0)
    gram, cross = gram * scale * scale[:, None], cross * scale
    if len(gram) > 0:
        eigenvalues, vectors = torch.linalg.eigh(gram)
        # Duplicate candidates have eigenvalues of rounding size: they add nothing to the span.
        kept = eigenvalues > 8 * len(gram) * torch.finfo(torch.float64).eps * eigenvalues[-1]
        squares = squares - ((cross @ vectors[:, kept]).square() / eigenvalues[kept]).sum(dim=1)
    return squares.clamp_min(0).sqrt().mean().item() / p**0.5


def evaluate(
    samples: Float[Tensor, "n d"],
    candidates: Float[Tensor, "m d"],
    feature_blocks: FeatureBlocks | None = None,
    p: int | None = None,
    seed: int = 0,
    directions_only: bool = False,
) -> Evaluation:
    """All errors at once.

    Norms: samples and candidates are compared as given, which should be as the victim had them. With `directions_only`
    both are brought to norm √d first: for homogeneous activations, where weights cannot tell norms, the comparison is
    about directions. The chance level is drawn from the sphere of radius √d in both cases.

    Features for the span residual come with p, the number of rows of V; see `span_residual`. `seed` draws the chance
    level.
    """
    if (feature_blocks is None) != (p is None):
        raise UsageError("expected feature_blocks and p together, found one of them alone")
    if directions_only:
        norm = samples.shape[1] ** 0.5
        samples, candidates = to_norm(samples, norm), to_norm(candidates, norm)
    matching = match(samples, candidates, sign_free=True)
    chance = _chance_errors(samples, len(candidates), seed, CHANCE_DRAWS)
    return Evaluation(
        n=len(samples),
        m=len(candidates),
        error=matching.distance.mean().item(),
        signed_error=signed_error(samples, candidates),
        chance_error=chance.sign_free,
        signed_chance_error=chance.signed,
        recovered_fraction=_recovered_fraction(matching),
        span_residual=None if feature_blocks is None or p is None else span_residual(feature_blocks, p),
        matching=matching,
    )


def _aligned(
    pairs: Pairs, matching: Matching, order: Int[Tensor, " k"]
) -> tuple[Float[Tensor, "k d"], Float[Tensor, "k d"]]:
    """Samples, and their candidates with the matched sign and at the norm of the sample."""
    true = pairs.samples[order].double()
    if not len(pairs.candidates):
        return true, torch.zeros_like(true)
    rows = pairs.candidates.double()[matching.candidate[order].clamp_min(0)]
    lengths = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    return true, rows * matching.sign.to(rows)[order][:, None] * (true.norm(dim=1, keepdim=True) / lengths)


@dataclass(frozen=True)
class _ChanceErrors:
    sign_free: float
    signed: float


def _chance_errors(samples: Float[Tensor, "n d"], m: int, seed: int, draws: int) -> _ChanceErrors:
    if m < 0 or draws < 1:
        raise UsageError(f"expected m >= 0 candidates and at least one draw, found m = {m} and {draws} draws")
    if seed < 0:
        raise UsageError(f"expected a seed >= 0, found {seed}")
    check_rows(samples, samples)
    x = samples.detach().cpu().double()
    n, d = x.shape
    generator = np.random.default_rng((CHANCE_STREAM, seed))
    unmatched = max(n - m, 0) * UNMATCHED_DISTANCE
    sign_free: list[float] = []
    signed: list[float] = []
    for _ in range(draws):
        guesses = to_norm(torch.from_numpy(generator.standard_normal((m, d))), d**0.5)
        # Random rows are far from the samples, so one product is accurate enough and serves both variants.
        products = x @ guesses.T
        squares = x.square().sum(dim=1, keepdim=True) + d
        for found, inner in ((sign_free, products.abs()), (signed, products)):
            cost = (squares - 2 * inner).clamp_min(0).sqrt() / d**0.5
            found.append((cost[assign(cost)].sum().item() + unmatched) / n)
    return _ChanceErrors(sum(sign_free) / draws, sum(signed) / draws)


def _recovered_fraction(matching: Matching) -> float:
    return (matching.matched & (matching.distance < RECOVERED_DISTANCE)).double().mean().item()


def _accumulate(
    feature_blocks: FeatureBlocks, p: int
) -> tuple[Float[Tensor, " n"], Float[Tensor, "n m"], Float[Tensor, "m m"]]:
    """Squared lengths of the samples' features, products with the candidates', and the candidates' Gram matrix."""
    rows_seen = 0
    squares = cross = gram = torch.zeros((), dtype=torch.float64)
    for of_samples, of_candidates in feature_blocks:
        a, b = of_samples.detach().cpu().double(), of_candidates.detach().cpu().double()
        squares = squares + a.square().sum(dim=1)
        cross = cross + a @ b.T
        gram = gram + b @ b.T
        rows_seen += a.shape[1]
    if rows_seen != p or p < 1:
        raise UsageError(f"expected features of p = {p} >= 1 rows in the blocks, found {rows_seen}")
    if len(squares) == 0:
        raise UsageError("expected the features of at least one sample, found none")
    return squares, cross, gram
