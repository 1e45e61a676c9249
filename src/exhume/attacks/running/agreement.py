"""Which candidates are right, judged without the truth by what independent runs agree on.

A loss that many candidates minimise has many minima, and a run ends in one of them: candidates that the weights demand
come back in every run, candidates that merely fill a gap do not. So candidates of several runs are pooled: two belong
together if their |cosine| is at least `cosine`, and a cluster takes from each run the candidate that is nearest to its
first member. Clusters are ranked by their agreement

    a = (1 / R) Σ_runs max over the run's candidates of |cos to the cluster's mean|,

which is 1 for a candidate that every one of R runs found, and at chance level for one that nobody else found. Rows are
averaged with the signs that bring them together, which also averages out what single runs leave of noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.errors import UsageError

COSINE = 0.9


@dataclass(frozen=True, order=True)
class RunCandidate:
    """A candidate by the number of its run and its own there."""

    run: int
    candidate: int


@dataclass(frozen=True, eq=False, repr=False)
class Cluster:
    """Candidates of different runs that agree; `agreement` is a, `mean` their average at the norm that they have."""

    mean: Float[Tensor, " d"]
    members: tuple[RunCandidate, ...]
    agreement: float

    @property
    def size(self) -> int:
        return len(self.members)


def agree(runs: Sequence[Float[Tensor, "_ d"]], cosine: float = COSINE) -> tuple[Cluster, ...]:
    """Clusters of all candidates, those that most runs agree on first."""
    if not runs or any(len(candidates) == 0 for candidates in runs):
        raise UsageError("expected candidates of at least one run, found none")
    if not 0 < cosine < 1:
        raise UsageError(f"expected a cosine between 0 and 1, found {cosine}")
    pooled = torch.cat([candidates.double().cpu() for candidates in runs])
    owner = torch.cat([torch.full((len(candidates),), run) for run, candidates in enumerate(runs)])
    place = torch.cat([torch.arange(len(candidates)) for candidates in runs])
    directions = _directions(pooled)
    alike = directions @ directions.T
    left = torch.ones(len(pooled), dtype=torch.bool)
    clusters = []
    for first in _order(alike.abs(), owner).tolist():
        if not left[first]:
            continue
        chosen = _nearest(alike[first].abs(), owner, left, cosine)
        signs = alike[first, chosen].sign()
        mean = (pooled[chosen] * signs[:, None]).mean(dim=0)
        mean = mean * (pooled[chosen].norm(dim=1).mean() / mean.norm().clamp_min(torch.finfo(torch.float64).tiny))
        near = (directions @ (mean / mean.norm())).abs()
        members = tuple(RunCandidate(int(owner[index]), int(place[index])) for index in chosen)
        agreement = sum(float(near[owner == run].max()) for run in range(len(runs))) / len(runs)
        clusters.append(Cluster(mean.to(runs[0].dtype), members, agreement))
        left[chosen] = False
        left &= near < cosine  # copies within a run belong to it as well
    return tuple(sorted(clusters, key=lambda cluster: -cluster.agreement))


@dataclass(frozen=True, eq=False, repr=False)
class Support:
    """Of each of some candidates: its agreement a, and the number of runs with a candidate that belongs to it."""

    agreement: Float[Tensor, " m"]
    runs: Int[Tensor, " m"]


def support_of(
    candidates: Float[Tensor, "m d"], runs: Sequence[Float[Tensor, "_ d"]], cosine: float = COSINE
) -> Support:
    own = _directions(candidates)
    nearest = torch.stack([(own @ _directions(run).T).abs().max(dim=1).values for run in runs])
    return Support(nearest.mean(dim=0), (nearest >= cosine).sum(dim=0))


def _directions(rows: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    rows = rows.double().cpu()
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)


def _order(alike: Float[Tensor, "a a"], owner: Tensor) -> Tensor:
    """Candidates that the other runs come closest to first."""
    best = torch.stack([alike[:, owner == run].max(dim=1).values for run in owner.unique()])
    return best.mean(dim=0).argsort(descending=True, stable=True)


def _nearest(near: Float[Tensor, " a"], owner: Tensor, left: Tensor, cosine: float) -> list[int]:
    """From each run the nearest candidate that is still free, if it is near enough."""
    chosen = []
    for run in owner.unique():
        free = ((owner == run) & left).nonzero()[:, 0]
        if len(free):
            index = int(free[near[free].argmax()])
            if float(near[index]) >= cosine:
                chosen.append(index)
    return chosen
