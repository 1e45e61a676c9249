"""The certificate of candidates for features φ(Vx + b): what is called recovered is what the equations determine.

A candidate is called recovered where the error to expect of it is small, and no other explanation of the same weights
puts a sample elsewhere. Both follow from the equations at the candidates, with the actual rows, φ and coefficients:

- the error to expect (`linearised.py`; `probing.py` and `moves.py` where there are many unknowns): σ² tr [H⁻¹]_ii, and
  the step that is still to be made;
- it could be a blend of two samples, or be where it is only if another one is none (`blends.py`);
- a part of it could belong to another candidate, or its sign be wrong (`alternatives.py`);
- as many unknowns could explain as much by chance: of p rows only those count as equations that tell something of their
  own above the noise (`structure.py`), and each that is left over is right by chance with probability σ.

All this is linear in small changes. Where some candidates may be far off, it is not, and what is called recovered must
stand without them: what they explain is a rest then. The cheapest are left out first, so that of two copies one stays.

σ² is the mean square by which an equation is missed that was not fitted: the larger of what held-out weights show and
of what fitted ones show where each is left out. It is noise only if other weights do not predict it (`structure.py`).
What they do predict is one function, which may lie along the direction that is determined least, or hide another
explanation, with all its size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.foundation.certificate import (
    CONFIDENT_BELOW,
    TRUSTED_ERROR,
    RowSplit,
    Unexplained,
    stand_alone,
    unjudged,
    verdict,
)
from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.attacks.foundation.unknowns import DENSE, TINY
from exhume.attacks.single_layer.alternatives import Parts, exchangeable, turnable
from exhume.attacks.single_layer.blends import Lifted, Splits, splits
from exhume.attacks.single_layer.lifts import Lift, lifted_moves, mean_gains
from exhume.attacks.single_layer.linearised import (
    FEW_ROWS,
    LEAST_SPARE,
    ROWS_EACH,
    Explanation,
    Linearised,
    explanation,
)
from exhume.attacks.single_layer.moves import MOST_MOVED, Moved
from exhume.attacks.single_layer.probing import Probed
from exhume.attacks.single_layer.span import Fit, SpanLoss
from exhume.attacks.single_layer.structure import SHOWS, Structure
from exhume.observation import Observation
from exhume.reconstruction import Certificate

ROUNDING = 2.0**-48 / 3  # the mean square of what single precision rounds off, over that of the weights
BY_CHANCE = 1e-12  # how likely equations that unknowns leave over may be right by chance
PREDICTABLE = 0.2  # a share of what is left from which it is no noise: noise gave up to 0.14, wrong signs from 0.28


def loss_on(
    observation: Observation,
    start: int,
    count: int,
    candidates: Float[Tensor, "m d"],
    coefficients: Float[Tensor, "m k"],
    ranks: Ranks = ALONE,
) -> float | None:
    """||θ_h − αᵀF_h||² / ||θ_h||² on rows that the attack did not fit; None where there are none."""
    weights = observation.weights[:, start : start + count]
    if count == 0 or not torch.any(weights):
        return None
    features, weights = ranks.share.of(observation.ridge.part(start, start + count)), ranks.share.columns(weights)
    loss = SpanLoss(features, weights, candidates.dtype, candidates.device, ranks)
    return loss.predict_loss(candidates, coefficients)


Unseen = Callable[[Float[Tensor, "m d"], Float[Tensor, "m k"]], float | None]


def certify(
    loss: SpanLoss,
    fit: Fit,
    unseen: Unseen,
    split: RowSplit,
    weights: Float[Tensor, "k p"],
    drifted: bool = False,
    lift: Lift | None = None,
    whole: Callable[[int], SpanLoss] | None = None,
    counted: bool = False,
) -> Certificate:
    """The outcome and each candidate's confidence, from the weights alone (`weights`: as they were published).

    `unseen`: the loss of candidates and coefficients on held-out weights. `drifted`: the features moved in training, so
    that a rest that looks like noise may be noise. `lift`: the samples that candidates stand for, if they are not the
    samples themselves: errors are those of samples. `whole`: the loss on the first rows where several ranks have their
    own, so that each finds the same. `counted`: there are known to be as many samples as candidates, so that none is a
    blend of two.
    """
    m = len(fit.candidates)
    unseen_loss = unseen(fit.candidates, fit.coefficients * loss.scale)
    if unseen_loss is None or loss.unknowns == loss.outputs:  # in one dimension at a known norm only signs are open
        return unjudged(m, split.held_out)
    held = weights[:, split.used + split.steering :].double().square().mean()  # a few may be small ones
    judge = _Judge(loss, lift, whole, float(held) / loss.scale**2 * len(weights) / loss.outputs, counted)
    squares, swayed, others = judge.squares(fit, unseen_loss)

    def again(kept: Int[Tensor, " few"]) -> tuple[Fit, Float[Tensor, " few"]]:
        here = loss.fit(fit.candidates[kept])
        return here, judge.squares(here, unseen(here.candidates, here.coefficients * loss.scale) or 0.0)[0]

    squares = stand_alone(squares, fit, loss, again)
    squares = squares + swayed
    doubtful: dict[str, tuple[int, ...]] = {}
    for name, those in others.items():
        doubtful[name] = tuple((those & (squares <= TRUSTED_ERROR**2)).nonzero()[:, 0].tolist())
        squares = squares.where(~those, torch.inf)
    left = Unexplained(fit.loss, unseen_loss, split.held_out * loss.outputs, m * loss.unknowns / loss.equations)
    certificate = verdict(squares, removal_costs(fit, loss), left, split.held_out, weights, drifted)
    known = unseen_loss <= CONFIDENT_BELOW
    return replace(certificate, doubtful={name: those for name, those in doubtful.items() if those and known})


@dataclass(frozen=True, eq=False, repr=False)
class _Judge:
    """What is the same for all candidates of a loss. `held`: the mean square of held-out weights, over that of fitted
    ones; outputs that repeat each other miss the same."""

    loss: SpanLoss
    lift: Lift | None
    whole: Callable[[int], SpanLoss] | None
    held: float
    counted: bool

    def squares(
        self, fit: Fit, unseen_loss: float
    ) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"], dict[str, Bool[Tensor, " m"]]]:
        """Squared errors to expect, over squared norms; those if others are blends; and of which candidates there is
        another explanation."""
        loss, same = self.loss, self.loss.ranks.same
        gathered = _gathered(loss, fit, self.whole)
        found = _determined(*gathered, self.lift, len(fit.candidates) * loss.unknowns / loss.equations)
        noise = max(unseen_loss * self.held, found.left_out, ROUNDING)
        structure = Structure.at(*gathered)
        share = float(same(torch.tensor(structure.predictable_share(gathered[1].residual), dtype=torch.float64)))
        coherent = share * loss.equations * noise if share > PREDICTABLE else 0.0
        squares = (noise * found.variances + coherent * found.largest + found.steps) / found.sizes
        if self._by_chance(structure, noise, len(fit.candidates)):
            squares = torch.full_like(squares, torch.inf)
        hidden = SHOWS * noise + coherent
        swayed = torch.zeros_like(squares) if self.counted else found.splits.swayed(hidden / found.one_of)
        known = squares <= TRUSTED_ERROR**2
        others = found.others(hidden, self.counted, loss.free_norms, known)
        return squares.nan_to_num(torch.inf), swayed, {name: same(those.double()) > 0 for name, those in others.items()}

    def _by_chance(self, structure: Structure, noise: float, m: int) -> bool:
        """Whether as many unknowns could explain the weights as well by chance: σ for each equation to spare."""
        equations = float(self.loss.ranks.same(torch.tensor(structure.equations(noise), dtype=torch.float64)))
        spare = self.loss.outputs * equations - m * self.loss.unknowns
        return spare / 2 * math.log(min(noise, 1.0)) > math.log(BY_CHANCE)


@dataclass(frozen=True, eq=False, repr=False)
class _Determined:
    """`at`: the equations, on one of `one_of` rows. `steps`: squares of those that are still to be made, `sizes` of the
    samples."""

    at: Explanation
    one_of: float
    variances: Float[Tensor, " m"]
    largest: Float[Tensor, " m"]
    steps: Float[Tensor, " m"]
    sizes: Float[Tensor, " m"]
    splits: Splits
    left_out: float

    def others(
        self, hidden: float, counted: bool, free_norms: bool, determined: Bool[Tensor, " m"]
    ) -> dict[str, Bool[Tensor, " m"]]:
        """Candidates of which there is another explanation, by its kind: it leaves at most `hidden` in the weights."""
        hidden = hidden / self.one_of
        known = Parts.of(self.at)
        others = {
            "parts": exchangeable(self.at, known, hidden, free_norms, determined),
            "sign": turnable(self.at, known, hidden),
        }
        return others if counted else {**others, "blend": self.splits.costs <= hidden}


def _gathered(loss: SpanLoss, fit: Fit, whole: Callable[[int], SpanLoss] | None) -> tuple[SpanLoss, Fit]:
    """The same on one rank, where other ranks have rows and there are few unknowns."""
    m, d = fit.candidates.shape
    if loss.ranks.size == 1 or m * d > DENSE or whole is None:
        return loss, fit
    alone = whole(max(FEW_ROWS, ROWS_EACH * m * loss.unknowns // loss.outputs)).to(fit.candidates.dtype)
    return alone, alone.fit(fit.candidates)


def _determined(loss: SpanLoss, fit: Fit, lift: Lift | None, q: float) -> _Determined:
    m, d = fit.candidates.shape
    candidates = fit.candidates.double()
    samples = candidates if lift is None else lift(candidates)
    sizes = samples.square().sum(dim=1).clamp_min(TINY)
    if m * d <= DENSE and loss.ranks.size == 1:
        at = Linearised.at(loss, fit)
        lifts = None if lift is None else lifted_moves(lift, candidates)
        steps = (at.step if lifts is None else torch.einsum("ied,id->ie", lifts, at.step)).square().sum(dim=1)
        one_of, variances = max(1.0, loss.p / at.features.p), at.variances(lifts)
        there = at.refined(at.step)
        split = splits(there, loss.free_norms, None if lifts is None else Lifted(lifts, sizes.sqrt()[:, None]))
        return _Determined(there, one_of, variances, at.largest(lifts), steps, sizes, split, at.left_out)
    probed = Probed.at(loss, fit)
    moved = loss.ranks.size == 1 and m * d <= MOST_MOVED
    plain = Moved.at(loss, fit) if moved else explanation(loss, fit, FEW_ROWS + ROWS_EACH * m)
    plain = plain.refined(probed.step.double())
    gains = torch.ones_like(sizes) if lift is None else mean_gains(lift, candidates)
    variances, steps = gains * probed.variances, gains * probed.step.double().square().sum(dim=1)
    one_of, left_out = max(1.0, loss.p / plain.features.p), fit.loss / max(1 - q, LEAST_SPARE) ** 2
    split = splits(plain, loss.free_norms)
    split = Splits(loss.ranks.same(split.left), loss.ranks.same(split.along), None)
    return _Determined(plain, one_of, variances, variances, steps, sizes, split, left_out)
