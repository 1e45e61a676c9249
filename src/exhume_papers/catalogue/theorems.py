"""Theorems 1 and 2, Remark 1, and how many exact solutions weights have: searched for counter-examples.

The theorems' hypothesis is about the span of the training features. Matching a span of n vectors is n (p − n) equations
for n (d − 1) unknowns, while θ alone is p − n: the theorems say nothing about what θ alone determines.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.activations import Activation, activation
from exhume_papers.catalogue.assumed_activation import ASSUMED
from exhume_papers.catalogue.figure import Scale, shown
from exhume_papers.catalogue.span_matching import CLOSE, Matched, match_span
from exhume_papers.catalogue.theory import Check, samples_on_sphere, weights_of

EVEN = Activation.of("cos", torch.cos)
LINEAR = activation("linear")


@dataclass(frozen=True)
class _Tried:
    """What became of the starts of one kind of problem."""

    starts: int
    exact: int
    far: int
    missing: int
    farthest: float

    def row(self) -> dict[str, Any]:
        return {**vars(self), "refuted_rate": rate_refuted(self.exact)}


def rate_refuted(trials: int) -> float:
    """The least rate that trials without one failure refute at 95 %: (1 − rate)^trials = 0.05.

    >>> round(rate_refuted(59), 3), rate_refuted(0)
    (0.05, 1.0)
    """
    return 1.0 if trials == 0 else 1 - 0.05 ** (1 / trials)


def spans_matched(scale: Scale) -> Check:
    """Theorems 1 and 2: where the features of n candidates span those of all n samples, each candidate is close to a
    sample (1), and no sample is left out (2; proved for n = 2). With n = 2 and 3 and d growing, p = 4dn, and an
    activation as assumed; beside it what the assumptions exclude: p below d, and a linear activation.
    """
    counts, dims, trials, starts = {
        "quick": ((2,), (4, 8), 2, 4),
        "here": ((2, 3), (5, 10, 20, 40), 15, 9),
        "paper": ((2, 3), (5, 10, 20, 40, 80), 20, 12),
    }[scale]
    rows: list[dict[str, Any]] = []
    for n, d in itertools.product(counts, dims):
        for case, phi, p in (
            ("as assumed", ASSUMED, 4 * d * n),
            ("p below d", ASSUMED, n + d // 2),
            ("linear", LINEAR, 4 * d * n),
        ):
            found = _try_spans(n, d, p, phi, trials, starts)
            rows.append({"case": case, "n": n, "d": d, "p": p, **found.row()})
    finding = "; ".join(_told(rows, case) for case in ("as assumed", "p below d", "linear"))
    return Check(
        "spans-matched", "candidates whose features span the data's are the data (Theorems 1 and 2)", rows, finding
    )


def signs_turned(scale: Scale) -> Check:
    """Remark 1: an even or odd φ cannot tell signs. Rows of a sign pattern span the same features; otherwise not."""
    n, d, trials = {"quick": (2, 8, 2), "here": (3, 40, 5), "paper": (3, 100, 10)}[scale]
    rows: list[dict[str, Any]] = []
    for phi in (activation("tanh"), EVEN, activation("relu"), activation("relu+tanh"), ASSUMED):
        least = [min(_turned(n, d, seed, phi)) for seed in range(trials)]
        rows.append({"activation": phi.name, "n": n, "d": d, "p": 4 * d * n, "least_unexplained": min(least)})
    told = ", ".join(f"{row['activation']} {shown(row['least_unexplained'])}" for row in rows)
    finding = f"least share of the features that samples with some signs turned leave out, n={n}, d={d}: {told}"
    return Check("signs-turned", "an even or odd activation hides signs, others do not (Remark 1)", rows, finding)


def other_solutions(scale: Scale) -> Check:
    """From θ alone: how often an exact solution far from the data is found, at and above p = dn."""
    sizes, trials, starts = {
        "quick": (((3, 2),), 3, 10),
        "here": (((3, 2), (4, 2), (4, 3)), 10, 20),
        "paper": (((3, 2), (4, 2), (4, 3), (6, 3)), 40, 100),
    }[scale]
    rows: list[dict[str, Any]] = []
    for (d, n), phi, ratio in itertools.product(sizes, (activation("relu"), ASSUMED), (1.0, 1.5, 2.0, 3.0)):
        p = round(ratio * d * n)
        wrong = [_has_other_solution(n, d, p, phi, seed, starts) for seed in range(trials)]
        rows.append({"activation": phi.name, "d": d, "n": n, "ratio": ratio, "problems": trials, "wrong": sum(wrong)})
    told = []
    for ratio in (1.0, 1.5, 2.0, 3.0):
        chosen = [row for row in rows if row["ratio"] == ratio]
        told.append(f"{sum(row['wrong'] for row in chosen)} of {sum(row['problems'] for row in chosen)} at {ratio:g}dn")
    finding = f"small problems in which the weights alone have an exact solution far from the data: {', '.join(told)}"
    return Check("other-solutions", "none about the weights alone (an open problem of the paper)", rows, finding)


def _try_spans(n: int, d: int, p: int, phi: Activation, trials: int, starts: int) -> _Tried:
    exact: list[tuple[float, int]] = []
    for seed in range(trials):
        samples, rows = samples_on_sphere(n, d, seed), weights_of(p, d, seed)
        for start in itertools.islice(_starts(samples, seed), starts):
            found = match_span(phi.value(samples @ rows.T), rows, phi, start)
            if found.exact:
                exact.append((found.farthest(samples), found.missing(samples)))
    return _Tried(
        starts=trials * starts,
        exact=len(exact),
        far=sum(distance > CLOSE for distance, _ in exact),
        missing=sum(missing > 0 for _, missing in exact),
        farthest=max((distance for distance, _ in exact), default=0.0),
    )


def _starts(samples: Float[Tensor, "n d"], seed: int) -> Iterator[Float[Tensor, "n d"]]:
    """At random; all candidates around one sample, as Theorem 2 excludes; and each around its own."""
    stream = seeds.generator(seed, "start")
    while True:
        for centre, width in ((torch.zeros_like(samples), 1.0), (samples[:1], 0.3), (samples, 0.7)):
            yield centre + width * torch.randn(samples.shape, generator=stream, dtype=samples.dtype)


def _turned(n: int, d: int, seed: int, phi: Activation) -> Iterator[float]:
    """For each pattern of signs but the right one, the share of the samples' features that is left out."""
    samples, rows = samples_on_sphere(n, d, seed), weights_of(4 * d * n, d, seed)
    target = phi.value(samples @ rows.T)
    for pattern in itertools.islice(itertools.product((1.0, -1.0), repeat=n), 1, None):
        yield match_span(target, rows, phi, samples * torch.tensor(pattern)[:, None], iterations=0).share


def _has_other_solution(n: int, d: int, p: int, phi: Activation, seed: int, starts: int) -> bool:
    samples, rows = samples_on_sphere(n, d, seed), weights_of(p, d, seed)
    labels = torch.randn(n, 1, generator=seeds.generator(seed, "noise"), dtype=samples.dtype)
    weights = (torch.linalg.pinv(phi.value(samples @ rows.T)) @ labels).T
    if not torch.any(weights):  # no row of a ReLU fires on any sample: all explain that
        return True
    random = itertools.islice(_starts(samples, seed), 0, 3 * starts, 3)
    return any(_wrong(match_span(weights, rows, phi, start), samples) for start in random)


def _wrong(found: Matched, samples: Float[Tensor, "n d"]) -> bool:
    """Exact, and far from the data up to signs."""
    both = torch.cat([samples, -samples])
    return found.exact and found.farthest(both) > CLOSE


def _told(rows: Sequence[Mapping[str, Any]], case: str) -> str:
    chosen = [row for row in rows if row["case"] == case]
    exact = sum(row["exact"] for row in chosen)
    text = (
        f"{case}: {exact} of {sum(row['starts'] for row in chosen)} searches matched the span, of these "
        f"{sum(row['far'] for row in chosen)} with a candidate farther than {CLOSE} from all samples, "
        f"{sum(row['missing'] for row in chosen)} with a sample left out"
    )
    if exact and not any(row["far"] or row["missing"] for row in chosen):
        worst = max(row["farthest"] for row in chosen)
        text += f" (largest distance {shown(worst)}; a rate above {shown(rate_refuted(exact))} is refuted at 95 %)"
    return text
