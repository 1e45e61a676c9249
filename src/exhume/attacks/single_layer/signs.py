"""The signs of candidates, for activations that are linear plus even (ReLU, GELU, softplus).

Once every x_i is known up to sign, φ(v·x) and φ(−v·x) together span the even part and the linear one: the regression of
θ on both has one solution for m ≤ d, and the larger of the two coefficients tells the sign. For m > d it has many, and
the signs whose sum is the linear part are searched for (`sign_search.py`), as they are where m rows nearly depend on
each other. Then single flips are tried for as long as they lower the loss.

An activation that is odd but for a constant (sigmoid) tells signs through that constant alone: φ(z) = c − φ(−z), so
each flipped sample leaves its coefficient behind, and the flips must add up to the constant that is missing. That is
one equation for all signs: it makes the fit exact, it does not identify them.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.activations import Activation
from exhume.attacks.single_layer.both_signs import BothSigns
from exhume.attacks.single_layer.pruning import needed, without_copies
from exhume.attacks.single_layer.sign_search import SignForm, likely_signs
from exhume.attacks.single_layer.span import Fit, SpanLoss

# by how much the other sign's coefficient must be larger before a candidate is turned
_MARGIN = 1.5
_HALF = 20  # 2^20 sums on each side
_DEPENDENT = 0.05  # the least singular value of independent rows, over the largest


def repair_signs(loss: SpanLoss, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """The candidates with the signs that the weights speak for; unchanged where they say nothing."""
    activation = loss.features.activation
    if loss.features.bias is not None or activation.parity != "none":
        return candidates
    if activation.linear_plus_even:
        return _with_signs(BothSigns.of(loss, candidates), candidates)
    if _constant_sum(activation) and len(loss.weights) == 1:
        return _repair_by_constant(loss, candidates)
    return candidates


def with_opposites(loss: SpanLoss, alone: Fit, floor: float) -> Float[Tensor, "more d"] | None:
    """The candidates, and the negatives of those whose negatives the weights need as well; None where they need none.

    Where x and −x are both samples, a search with a free linear part finds only one of them. Two passes.
    """
    features, (m, d) = loss.features, alone.candidates.shape
    if not features.activation.linear_plus_even or features.bias is not None or 2 * m > d:
        return None
    both = loss.fit(torch.cat([alone.candidates, -alone.candidates]))
    if both.loss > alone.loss / 10:
        return None
    moments = both.gram @ both.coefficients
    return both.candidates[needed(both.gram, moments, loss.energy, max(10 * both.loss, floor))]


def trimmed(loss: SpanLoss, fit: Fit, negligible: float) -> Float[Tensor, "fewer d"]:
    """The candidates that the weights need, without copies and ghosts, and with their signs where these can be known.

    Two passes where the activation is linear plus even, else none.
    """
    candidates, features = fit.candidates, loss.features
    kept = without_copies(fit.candidates, fit.coefficients)
    if loss.affine is None and features.bias is None and features.activation.linear_plus_even:
        products = BothSigns.of(loss, candidates[kept])
        chosen = products.needed(negligible)
        return _with_signs(products.part(chosen), candidates[kept][chosen])
    gram, moments = fit.gram[kept][:, kept], (fit.gram @ fit.coefficients)[kept]
    return candidates[kept][needed(gram, moments, loss.energy, negligible)]


def _with_signs(products: BothSigns, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    m, d = candidates.shape
    choices = [torch.zeros(m, dtype=torch.bool, device=candidates.device)]
    if m <= d:
        choices.append(products.negative_is_larger(_MARGIN))
    if _nearly_dependent(candidates):
        choices += list(likely_signs(SignForm.of(products)) < 0)  # those that fit the linear part best
    flipped = _flip_while_better(products, max(choices, key=products.explained))
    return torch.where(flipped[:, None], -candidates, candidates)


def _flip_while_better(products: BothSigns, flipped: Bool[Tensor, " m"]) -> Bool[Tensor, " m"]:
    """Single flips for as long as they explain more. No pass: m small solves a round."""
    best = products.explained(flipped)
    for _ in range(2 * len(flipped)):
        trials = []
        for index in range(len(flipped)):
            trial = flipped.clone()
            trial[index] = ~trial[index]
            trials.append(products.explained(trial))
        index = max(range(len(trials)), key=trials.__getitem__)
        if not trials[index] > best * (1 + 1e-9):
            break
        best = trials[index]
        flipped = flipped.clone()
        flipped[index] = ~flipped[index]
    return flipped


def _nearly_dependent(candidates: Float[Tensor, "m d"]) -> bool:
    """Whether the coefficients of the linear part are hardly determined: always so for m > d."""
    m, d = candidates.shape
    norms = candidates.norm(dim=1, keepdim=True).clamp_min(torch.finfo(candidates.dtype).tiny)
    values = torch.linalg.svdvals((candidates / norms).double())
    return m > d or bool(values[-1] < _DEPENDENT * values[0])


def _constant_sum(activation: Activation) -> float:
    """c where φ(z) + φ(−z) = c for all z, else 0."""
    points = torch.linspace(0, 8, 33, dtype=torch.float64)
    sums = activation.value(points) + activation.value(-points)
    return float(sums.mean()) if float(sums.std()) < 1e-9 else 0.0


def _repair_by_constant(loss: SpanLoss, candidates: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """Flips whose coefficients add up to the missing constant, the closest sum of up to 40 of them."""
    m, p = len(candidates), loss.p
    gram = torch.zeros(m + 1, m + 1, dtype=torch.float64, device=candidates.device)
    moments = torch.zeros(m + 1, dtype=torch.float64, device=candidates.device)
    for block, features in loss.features.feature_blocks(candidates):
        ones = torch.ones(1, features.shape[1], dtype=torch.float64, device=candidates.device)
        exact = torch.cat([features.double(), ones])
        gram += exact @ exact.T
        moments += exact @ loss.weights[0, block].double()
    gram, moments = loss.ranks.sum(gram), loss.ranks.sum(moments)
    loss.count_passes(1)
    if not (torch.isfinite(gram).all() and torch.isfinite(moments).all()):  # lstsq takes it for a fault of its own
        raise torch.linalg.LinAlgError("least squares: the matrix contained non-finite values")
    solved = torch.linalg.lstsq(gram / p, (moments / p)[:, None], driver="gelsd").solution[:, 0].cpu()
    missing = -float(solved[m]) / _constant_sum(loss.features.activation)
    flipped = torch.zeros(m, dtype=torch.bool)
    flipped[: 2 * _HALF] = _closest_subset(solved[: min(m, 2 * _HALF)], missing)
    return torch.where(flipped.to(candidates.device)[:, None], -candidates, candidates)


def _closest_subset(values: Float[Tensor, " m"], target: float) -> Bool[Tensor, " m"]:
    """The subset whose sum is closest to the target, by meeting in the middle."""
    left, right = values[: len(values) // 2], values[len(values) // 2 :]
    left_sums, right_sums = _subset_sums(left), _subset_sums(right)
    ordered, order = right_sums.sort()
    wanted = target - left_sums
    above = torch.searchsorted(ordered, wanted).clamp_max(len(ordered) - 1)
    below = (above - 1).clamp_min(0)
    nearest = torch.where((ordered[above] - wanted).abs() < (ordered[below] - wanted).abs(), above, below)
    best = int((ordered[nearest] - wanted).abs().argmin())
    chosen = int(order[nearest[best]])
    bits = [bool(best >> i & 1) for i in range(len(left))] + [bool(chosen >> i & 1) for i in range(len(right))]
    return torch.tensor(bits, dtype=torch.bool)


def _subset_sums(values: Float[Tensor, " count"]) -> Float[Tensor, " subsets"]:
    sums = values.new_zeros(1)
    for value in values:
        sums = torch.cat([sums, sums + value])
    return sums
