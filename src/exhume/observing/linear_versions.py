"""What two released versions of a linear model tell of the record between them.

A linear model with weights W and intercepts b is the minimum of a loss over its records x plus a penalty λ|W|²/2. With
x̃ = (x, 1), θ = (W, b) and H the second derivatives of all of it,

    H (θ_new − θ_old) ≈ ± r x̃ᵀ

where r is the derivative of the loss of the record that was deleted or added, one number per output: the change is of
rank one, and H turns it into the record (Bertran et al. 2024). The last number of x̃ is 1, so with intercepts it comes
back with its norm and its sign. H is that of n records; public records of the same kind give H / n, and λ / n is known
from the file and n, or chosen by likelihood as for features (`two_versions.py`). Cross-entropy tells more: only with
the right λ / n the outcome is of rank one, so the one that brings it nearest to that is taken.

| loss | second derivatives along output j, per record |
| --- | --- |
| square | x̃x̃ᵀ |
| logistic | p (1 − p) x̃x̃ᵀ |
| cross-entropy | p_j (δ_jk − p_k) x̃x̃ᵀ, which mixes the outputs |
| squared-hinge | 2 x̃x̃ᵀ inside the margin, whose intercept is penalised as well |
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError, UsageError
from exhume.observing.two_versions import FEWEST_PUBLIC, PENALTIES, likelihood, row_space, second_moments

LOSSES = ("square", "logistic", "cross-entropy", "squared-hinge")
NO_NORM = 1e-6
"""Of the largest number of x̃: a last one so small tells no norm."""
LINEAR = ("square",)
"""Losses whose change of the weights has itself as many dimensions as records that changed."""
Linear = tuple[Float[Tensor, "k d"], Float[Tensor, " k"] | None]


@dataclass(frozen=True, eq=False, repr=False)
class LinearChange:
    """`rows`: the record, or a basis of what the records span. `whole`: whether its norm and sign are known."""

    rows: Float[Tensor, "r d"]
    whole: bool
    outputs: int
    counted: bool
    """Whether the outputs are enough to say how many records changed."""
    share: float
    """Of the change times the second derivatives, by its norm: what the rows explain."""
    penalty: float
    """λ/n."""


def between_linear_versions(
    new: Linear, old: Linear, public: Float[Tensor, "N d"], loss: str, penalty: float | None = None
) -> LinearChange:
    """`penalty`: λ/n, None where nobody said it."""
    if new[0].shape != old[0].shape or (new[1] is None) != (old[1] is None):
        raise ExhumeError(f"expected two versions of one shape, found {list(old[0].shape)} and {list(new[0].shape)}")
    if len(public) < FEWEST_PUBLIC:
        raise UsageError(f"expected at least {FEWEST_PUBLIC} public records, found {len(public)}")
    (outputs, d), biased = new[0].shape, new[1] is not None
    if public.shape[1] != d:
        raise UsageError(f"expected public records of d = {d} numbers, found {public.shape[1]}")
    after, before = (_joined(*version) for version in (new, old))
    change, middle = after - before, (after + before) / 2
    if not bool(change.any()):
        raise ExhumeError("expected two versions that differ, found the same weights twice")
    records = public.double()
    inputs = torch.cat([records, records.new_ones(len(records), 1)], dim=1) if biased else records
    curved = _curvature(inputs, inputs @ middle.T, loss)
    penalised = torch.ones(inputs.shape[1], dtype=torch.float64)
    if biased and loss != "squared-hinge":
        penalised[-1] = 0
    of_losses = _second_derivatives(inputs, inputs @ change.T, inputs @ middle.T, curved, loss)
    if penalty is None and loss == "cross-entropy" and outputs > 1:
        scale = float((curved.mean(dim=1) @ records.square()).mean()) / len(records)
        tried = [scale * ridge for ridge in PENALTIES]
        penalty = max(tried, key=lambda ridge: _first_share(of_losses + ridge * change * penalised))
    elif penalty is None:
        penalty = _likely(records, curved, change[:, :d], biased)
    gradient = of_losses + penalty * change * penalised
    dimensions = len(row_space(change if loss in LINEAR else gradient))
    counted = loss in LINEAR and dimensions < outputs
    _, values, rows = torch.linalg.svd(gradient, full_matrices=False)
    kept = dimensions if counted else 1
    share = float(values[:kept].square().sum().sqrt() / values.norm())
    found = rows[:kept]
    last = found[0, -1]
    if biased and kept == 1 and bool(last.abs() > NO_NORM * found.abs().max()):
        return LinearChange(found[:, :d] / last, True, outputs, counted, share, penalty)
    return LinearChange(found[:, :d], False, outputs, counted, share, penalty)


def _first_share(matrix: Float[Tensor, "k e"]) -> float:
    values = torch.linalg.svdvals(matrix)
    return float(values[0] / values.norm())


def _joined(weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"] | None) -> Float[Tensor, "k e"]:
    return weight.double() if bias is None else torch.cat([weight.double(), bias.double()[:, None]], dim=1)


def _curvature(inputs: Float[Tensor, "N e"], answers: Float[Tensor, "N k"], loss: str) -> Float[Tensor, "N k"]:
    """The second derivative of each record's loss in each answer. Labels are not needed: of a hinge, a public record is
    taken to be on its own side."""
    match loss:
        case "square":
            return torch.ones_like(answers)
        case "logistic":
            chance = answers.sigmoid()
            return chance * (1 - chance)
        case "cross-entropy":
            chance = answers.softmax(dim=1)
            return chance * (1 - chance)
        case "squared-hinge":
            return 2 * (answers.abs() < 1).to(answers)
    raise UsageError(f"expected a loss out of {', '.join(LOSSES)}, found {loss!r}")


def _second_derivatives(
    inputs: Float[Tensor, "N e"],
    moved: Float[Tensor, "N k"],
    answers: Float[Tensor, "N k"],
    curved: Float[Tensor, "N k"],
    loss: str,
) -> Float[Tensor, "k e"]:
    """Those of the mean loss, times the change, by what the change does to each answer."""
    if loss == "cross-entropy":
        chance = answers.softmax(dim=1)
        weighted = chance * (moved - (chance * moved).sum(dim=1, keepdim=True))
    else:
        weighted = curved * moved
    return weighted.T @ inputs / len(inputs)


def _likely(
    records: Float[Tensor, "N d"], curved: Float[Tensor, "N k"], change: Float[Tensor, "k d"], biased: bool
) -> float:
    """λ/n by the likelihood of the largest direction of the change, in the axes of the records around their mean."""
    size = curved.mean(dim=1)
    centre = (size @ records) / size.sum().clamp_min(torch.finfo(torch.float64).tiny) if biased else 0.0
    moments, axes = second_moments((records - centre) * size.sqrt()[:, None])
    scale = float(moments.sum()) / records.shape[1]
    inside = torch.linalg.svd(change, full_matrices=False).Vh[:1] @ axes
    return scale * max(PENALTIES, key=lambda ridge: likelihood(inside, moments, ridge * scale))
