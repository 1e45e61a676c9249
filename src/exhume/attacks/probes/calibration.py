"""Scores turned into probabilities of a false alarm, by records that are known not to be training data.

A record that was not trained on is one more of N such records if these are of its kind: its score is then equally
likely to take any place among theirs, so

    p = (1 + #{non-members that score at least as high}) / (N + 1)

is below any u with probability at most u. Nothing is assumed of the scores, and no p is below 1 / (N + 1). Among many
records some have a small p by chance; q is the share of false ones to expect among all that are at least as good
(Benjamini and Hochberg).
"""

import torch
from jaxtyping import Float
from torch import Tensor

MEDIAN, HIGH = 0.5, 0.95


def p_values(scores: Float[Tensor, " m"], non_members: Float[Tensor, " c"]) -> Float[Tensor, " m"]:
    """
    >>> p_values(torch.tensor([5.0, 0.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])).tolist()
    [0.25, 1.0, 0.75]
    """
    rising = non_members.double().sort().values
    below = torch.searchsorted(rising, scores.double(), side="left")
    return (1 + len(rising) - below).double() / (len(rising) + 1)


def q_values(p: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """min over p' ≥ p of m p' / rank(p'), at most 1.

    >>> q_values(torch.tensor([0.01, 0.5, 0.02, 0.03], dtype=torch.float64)).tolist()
    [0.04, 0.5, 0.04, 0.04]
    """
    order = p.double().argsort(descending=True)
    m = len(p)
    scaled = p.double()[order] * m / torch.arange(m, 0, -1, dtype=torch.float64)
    q = torch.empty(m, dtype=torch.float64)
    q[order] = scaled.cummin(dim=0).values.clamp_max(1.0) if m else scaled
    return q


def in_units_of_chance(scores: Float[Tensor, " m"], reference: Float[Tensor, " c"]) -> Float[Tensor, " m"]:
    """Scores so that the median of the reference is 0 and one in twenty of it is above 1."""
    median, high = torch.quantile(reference.double(), torch.tensor([MEDIAN, HIGH], dtype=torch.float64))
    spread = high - median
    return (scores.double() - median) / (spread if spread > 0 else 1.0)
