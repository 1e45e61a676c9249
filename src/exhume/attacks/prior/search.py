"""Candidates in the lowest frequencies of images: growth where the residual points, and regrowth of what fits worst.

The search works on one `Level` at a time: r coordinates, a share s² of the energy that is taken to be unresolved, and a
weight of the prior. New candidates are eigenvectors of the residual's moment in whitened coordinates,

    S^½ Σ_k r_k (g_k g_kᵀ − I) S^½,     S = diag(variance_j),   g_k = Uᵀv_k / std(v),

so that directions in which images have little energy have to show much of the residual to be proposed.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.projection import TOLERATED, removal_costs
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.prior.loss import PriorFit, PriorLoss
from exhume.attacks.prior.newton import PriorNewton
from exhume.attacks.prior.smoothing import smoothed
from exhume.attacks.single_layer.pruning import without_copies
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows

PriorFits = Generator[PriorFit, None, PriorFit]

MOST_MOMENTS = 256  # coordinates whose moments are looked at
GROWTH = 0.25  # of the candidates are added at most, a stage
STAGE_STEPS, LAST_STEPS = 10, 40
LEAST_DROPPED = 0.15
COPY_COSINE = 0.93
FIRST_GROWTH = 4  # where the number of samples is not known
WORTH, PATIENCE = 0.01, 2  # growth ends after so many stages that lowered the loss on unseen weights by less than this


@dataclass(frozen=True, eq=False, repr=False)
class SearchRows:
    """Rows of V in all coordinates of a spectrum, with the weights (of unit mean square) that belong to them."""

    features: RidgeFeatures
    weights: Float[Tensor, "k p"]

    def at(self, level: "Level") -> RidgeFeatures:
        """The features that candidates of r coordinates are expected to have."""
        values = self.features.rows.block(0, self.features.p)
        activation = smoothed(self.features.activation, level.unresolved, level.deviation)
        return replace(self.features, rows=HeldRows(values[:, : level.r]), activation=activation)


@dataclass(frozen=True, eq=False, repr=False)
class Level:
    """What is resolved, and how much the prior counts: λ_j = weight / variance_j.

    `deviation` is that of v·x for a whole sample; `norm` that of a sample.
    """

    variance: Float[Tensor, " r"]
    unresolved: float
    weight: float
    norm: float
    deviation: float

    @property
    def r(self) -> int:
        return len(self.variance)

    def loss(self, rows: SearchRows) -> PriorLoss:
        return PriorLoss(rows.at(self), rows.weights, self.weight / self.variance)


def refined(loss: PriorLoss, fit: PriorFit, norm: float, steps: int, rule: PriorNewton | None = None) -> PriorFits:
    last = fit
    for last in (rule or PriorNewton()).refine(loss, fit, norm, steps):
        yield last
    return last


def grown(loss: PriorLoss, level: Level, candidates: Float[Tensor, "m r"] | None, count: int) -> PriorFits:
    """Adds candidates until there are `count`, a quarter at a time, and refines all of them after each addition."""
    fit = None if candidates is None or not len(candidates) else loss.fit(candidates)
    while fit is None or len(fit.candidates) < count:
        m = 0 if fit is None else len(fit.candidates)
        most = max(1, count // 2 if fit is None else int(GROWTH * m))
        new = proposals(loss, level, loss.weights if fit is None else fit.residual, min(most, count - m))
        fit = loss.fit(new if fit is None else torch.cat([fit.candidates, new]))
        fit = yield from refined(loss, fit, level.norm, STAGE_STEPS, PriorNewton(stall_factor=0.98))
    return (yield from refined(loss, fit, level.norm, LAST_STEPS))


def grown_freely(loss: PriorLoss, level: Level, score: Callable[[PriorFit], float | None], most: int) -> PriorFits:
    """Grows while unseen weights are predicted better, at most to `most` candidates; the best of all sizes."""
    fit = yield from grown(loss, level, None, min(FIRST_GROWTH, most))
    best, best_score, since = fit, score(fit), 0
    while best_score is not None and len(fit.candidates) < most and since < PATIENCE:
        m = len(fit.candidates)
        fit = yield from grown(loss, level, fit.candidates, min(most, m + max(1, int(GROWTH * m))))
        fit = yield from merged(loss, level, fit)
        found = score(fit)
        if found is not None and found < (1 - WORTH) * best_score:
            best, best_score, since = fit, found, 0
        else:
            since += 1
    return best


def merged(loss: PriorLoss, level: Level, fit: PriorFit) -> PriorFits:
    """One candidate for each group that agrees up to sign: the prior costs half as much for two halves of a sample."""
    kept = without_copies(fit.candidates, fit.coefficients, COPY_COSINE)
    if bool(kept.all()):
        return fit
    return (yield from refined(loss, loss.fit(fit.candidates[kept]), level.norm, STAGE_STEPS))


def pruned(
    loss: PriorLoss, level: Level, fit: PriorFit, score: Callable[[PriorFit], float | None], fewest: int = 1
) -> PriorFits:
    """Without the candidates that unseen weights do not miss: a quarter of them at a time, then fewer, then one."""
    fit = yield from merged(loss, level, fit)
    several, reference = max(1, len(fit.candidates) // 4), score(fit)
    while reference is not None and several and len(fit.candidates) > fewest:
        count = min(several, len(fit.candidates) - fewest)
        kept = removal_costs(fit, loss).argsort(descending=True)[: len(fit.candidates) - count]
        trial = loss.fit(fit.candidates[kept])
        trial = yield from refined(loss, trial, level.norm, STAGE_STEPS, PriorNewton(stall_factor=0.98))
        found = score(trial)
        if found is not None and found <= TOLERATED * reference:
            fit, reference = trial, min(reference, found)
        else:
            several //= 2
    return fit


def parted(loss: PriorLoss, level: Level, fit: PriorFit) -> PriorFits:
    """As many candidates as before, but other ones in place of copies: the halves of one sample hide another."""
    fewer = yield from merged(loss, level, fit)
    if len(fewer.candidates) == len(fit.candidates):
        return fit
    return (yield from grown(loss, level, fewer.candidates, len(fit.candidates)))


def regrown(loss: PriorLoss, level: Level, fit: PriorFit, generator: torch.Generator, most: float) -> PriorFits:
    """Drops from 15 % to `most` of the candidates, those that explain least, and grows again; the better, by J."""
    m = len(fit.candidates)
    share = LEAST_DROPPED + (most - LEAST_DROPPED) * float(torch.rand(1, generator=generator))
    kept = removal_costs(fit, loss).argsort(descending=True)[: max(1, m - max(2, int(share * m)))]
    growth = grown(loss, level, fit.candidates[kept], m)
    while True:
        try:
            next(growth)
        except StopIteration as end:
            trial: PriorFit = end.value
            return trial if trial.objective < fit.objective else fit
        yield fit


def proposals(loss: PriorLoss, level: Level, residual: Float[Tensor, "k p"], count: int) -> Float[Tensor, "count r"]:
    """Eigenvectors of the residual's whitened moment, largest |eigenvalue| first, at the norm of a sample."""
    looked = min(level.r, max(MOST_MOMENTS, count))
    scale = level.variance[:looked].sqrt().to(residual)
    rows = loss.rows[:, :looked] * scale
    squares = torch.zeros(looked, looked, dtype=torch.float64, device=residual.device)
    for output in residual:
        moment = ((rows * output[:, None]).T @ rows / loss.mean_square).double()
        moment -= float(output.double().sum()) * torch.diag(scale.double().square())
        squares += moment @ moment
    values, vectors = torch.linalg.eigh(squares)
    sizes, vectors = values.flip(0)[:count].clamp_min(0).sqrt(), vectors.flip(1).T[:count]
    found = torch.zeros(count, level.r, dtype=residual.dtype, device=residual.device)
    noise = float(residual.double().square().sum()) * (vectors * scale).square().sum(dim=1)
    found[:, :looked] = _unwhitened(sizes[:, None] * vectors, level.variance[:looked].to(sizes), noise).to(found)
    return to_norm(found, level.norm)


def _unwhitened(
    seen: Float[Tensor, "count looked"], variance: Float[Tensor, " looked"], noise: Float[Tensor, " count"]
) -> Float[Tensor, "count looked"]:
    """Wiener's estimate of x from S^½ x seen through noise S^½ n, where n has that variance and x one ∝ `variance`."""
    plain = seen / variance.sqrt()
    energy = plain.square().sum(dim=1)
    share = ((energy - len(variance) * noise) / energy.clamp_min(torch.finfo(energy.dtype).tiny)).clamp_min(0.01)
    signal = share * energy / variance.sum()
    return plain * variance / (variance + (noise / signal)[:, None])
