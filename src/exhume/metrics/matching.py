"""Which candidate stands for which sample: optimal assignment, signs, norms and duplicates.

Rows are compared as given: a candidate with the right direction and the wrong norm is at a distance. Where the weights
cannot tell norms (homogeneous activations) bring both sides to one norm first, with `to_norm`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from exhume.errors import ExhumeError, UsageError

NO_CANDIDATE = -1
RECOGNISED_COSINE = 0.9
UNMATCHED_DISTANCE = 1.0
CLOSE = 1e-4  # a distance over the norms below which inner products leave too few digits of it
FEW_NUMBERS = 2**22  # differences that take milliseconds


@dataclass(frozen=True, repr=False)
class Matching:
    """The candidate of each sample, one to one."""

    candidate: Int[Tensor, " n"]
    """Index π(i) of the candidate of sample i, or -1 if there are fewer candidates than samples and i got none."""
    sign: Float[Tensor, " n"]
    """The s_i = ±1 that brings the candidate closer; +1 without candidate or if signs are not free."""
    distance: Float[Tensor, " n"]
    """‖x_i - s_i x^_π(i)‖₂ over √d (`match`) or over ‖x_i‖ (`match_by_norm`), and 1 without candidate."""

    @property
    def matched(self) -> Bool[Tensor, " n"]:
        """Which samples have a candidate."""
        return self.candidate != NO_CANDIDATE


def match(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"], sign_free: bool) -> Matching:
    """The one-to-one assignment π, with the better sign if `sign_free`, that minimises Σ_i ‖x_i − s_i x^_π(i)‖₂.

    All min(n, m) pairs are made, even distant ones. Distances are as exact as sums of squared differences in float64:
    equal rows are at distance 0.

    >>> match(torch.eye(2), -torch.eye(2).flip(0), sign_free=True).candidate
    tensor([1, 0])
    """
    check_rows(samples, candidates)
    x, y = samples.detach().cpu().double(), candidates.detach().cpu().double()
    same = _distances(x, y)
    opposite = _distances(x, -y) if sign_free else torch.full_like(same, torch.inf)
    cost = torch.minimum(same, opposite)
    rows, columns = assign(cost)

    n, d = x.shape
    candidate = torch.full((n,), NO_CANDIDATE, dtype=torch.int64)
    sign = torch.ones(n, dtype=torch.float64)
    distance = torch.full((n,), UNMATCHED_DISTANCE, dtype=torch.float64)
    candidate[rows] = columns
    sign[rows] = torch.where(opposite < same, -1.0, 1.0).to(sign.dtype)[rows, columns]
    distance[rows] = cost[rows, columns] / d**0.5
    return Matching(candidate, sign, distance)


def match_by_norm(
    samples: Float[Tensor, "n d"],
    candidates: Float[Tensor, "m d"],
    sign_free: bool,
    norms: Float[Tensor, " n"] | None = None,
) -> Matching:
    """The same with distances over the sample's own norm: the π that minimises Σ_i min(‖x_i − s_i x^_π(i)‖ / ‖x_i‖, 1).
    `norms` may be given instead.

    A candidate farther than the sample's own norm is worse than none, and counts as none: so a few wild candidates
    cannot tear good pairs apart for the sake of a smaller sum.

    >>> wild = torch.tensor([[1.0, 0.0], [9.0, 9.0]])
    >>> match_by_norm(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), wild, sign_free=False).candidate
    tensor([ 0, -1])
    """
    check_rows(samples, candidates)
    x, y = samples.detach().cpu().double(), candidates.detach().cpu().double()
    scale = (x.norm(dim=1) if norms is None else norms).clamp_min(torch.finfo(torch.float64).tiny)[:, None]
    same = _distances(x, y) / scale
    opposite = _distances(x, -y) / scale if sign_free else torch.full_like(same, torch.inf)
    cost = torch.minimum(same, opposite).clamp_max(UNMATCHED_DISTANCE)
    rows, columns = assign(cost)
    near = cost[rows, columns] < UNMATCHED_DISTANCE
    rows, columns = rows[near], columns[near]

    candidate = torch.full((len(x),), NO_CANDIDATE, dtype=torch.int64)
    sign = torch.ones(len(x), dtype=torch.float64)
    distance = torch.full((len(x),), UNMATCHED_DISTANCE, dtype=torch.float64)
    candidate[rows] = columns
    sign[rows] = torch.where(opposite < same, -1.0, 1.0).to(sign.dtype)[rows, columns]
    distance[rows] = cost[rows, columns]
    return Matching(candidate, sign, distance)


def assign(cost: Float[Tensor, "n m"]) -> tuple[Int[Tensor, " k"], Int[Tensor, " k"]]:
    """Rows and columns of the k = min(n, m) pairs with the smallest total cost, no row or column twice."""
    rows, columns = linear_sum_assignment(cost.numpy())
    return torch.from_numpy(rows), torch.from_numpy(columns)


def to_norm(rows: Float[Tensor, "m d"], norm: float) -> Float[Tensor, "m d"]:
    """The rows with their directions kept and their norms set to `norm`; a row of zeros has no direction and stays.

    >>> to_norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 10.0)
    tensor([[6., 8.],
            [0., 0.]])
    """
    # float64, so that the squares of small float32 numbers do not vanish
    precise = rows.double()
    largest = precise.abs().amax(dim=1, keepdim=True)
    precise = precise / torch.where(largest > 0, largest, 1.0)
    norms = torch.linalg.vector_norm(precise, dim=1, keepdim=True)
    return (precise * (norm / torch.where(norms > 0, norms, 1.0))).to(rows.dtype)


def duplicates(candidates: Float[Tensor, "m d"], cosine: float = 0.999) -> tuple[tuple[int, ...], ...]:
    """Groups of two and more candidates that point in one direction up to sign.

    Two candidates belong together if |cos| > `cosine`, and so do the neighbours of neighbours. Groups and their
    members come in rising order. Rows of zeros belong to no group.

    >>> duplicates(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]))
    ((0, 2),)
    """
    if not 0 < cosine < 1:
        raise UsageError(f"expected a cosine between 0 and 1, found {cosine}")
    if len(candidates) == 0:
        return ()
    directions = to_norm(candidates.detach().cpu().double(), 1.0)
    close = (directions @ directions.T).abs() > cosine
    count, labels = connected_components(close.numpy(), directed=False)
    groups = sorted(tuple(np.flatnonzero(labels == label).tolist()) for label in range(count))
    return tuple(group for group in groups if len(group) > 1)


def check_rows(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> None:
    """Refuse what cannot be compared: no samples, another dimension, numbers that are not finite."""
    if samples.shape[0] == 0 or samples.shape[1] == 0:
        raise UsageError(f"expected at least one sample of dimension 1 or more, found shape {tuple(samples.shape)}")
    if samples.shape[1] != candidates.shape[1]:
        raise UsageError(
            f"expected candidates of the samples' dimension {samples.shape[1]}, found {candidates.shape[1]}; "
            "compare the attack with the data its victim was trained on"
        )
    for name, rows in (("samples", samples), ("candidates", candidates)):
        broken = (~rows.isfinite().all(dim=1)).nonzero().flatten()
        if len(broken) > 0:
            raise ExhumeError(
                f"expected finite numbers in the {name}, found NaN or infinity in {len(broken)} of {len(rows)} rows, "
                f"the first is row {int(broken[0])}; drop these rows"
            )


def _distances(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """‖x_i − y_j‖: by inner products, which take a tenth of the time; where these cancel, by differences.

    ‖x‖² + ‖y‖² − 2 x·y has an error of about ε (‖x‖² + ‖y‖²): relative to the distance, 1e-8 at `CLOSE`, less beyond.
    """
    if len(x) * len(y) * x.shape[1] <= FEW_NUMBERS:
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    sizes = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)
    squares = torch.addmm(sizes, x, y.T, alpha=-2.0)
    rows, columns = (~(squares > CLOSE**2 * sizes)).nonzero(as_tuple=True)
    at_once = max(1, FEW_NUMBERS // x.shape[1])
    for i, j in zip(rows.split(at_once), columns.split(at_once), strict=True):
        squares[i, j] = (x[i] - y[j]).square().sum(dim=1)
    return squares.sqrt()


def nearest_cosines(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> Float[Tensor, " n"]:
    """The largest |cosine| that each sample has with any candidate; 0 without candidates.

    >>> nearest_cosines(torch.eye(2), torch.tensor([[-3.0, 0.0]]))
    tensor([1., 0.], dtype=torch.float64)
    """
    check_rows(samples, candidates)
    if len(candidates) == 0:
        return torch.zeros(len(samples), dtype=torch.float64)
    wanted, found = (to_norm(rows.detach().cpu().double(), 1.0) for rows in (samples, candidates))
    return (wanted @ found.T).abs().max(dim=1).values


def recognised(samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]) -> int:
    """Samples that some candidate has a |cosine| above 0.9 with; candidates may serve for several."""
    return int((nearest_cosines(samples, candidates) > RECOGNISED_COSINE).sum())
