"""Small checks of what the paper's theorems rest on: concentration of the features, and spans without duplicates.

No sweeps: each check is some linear algebra or a little optimisation. All numbers follow from the seeds 0, 1, 2, ...,
and the activation meets the paper's Assumption 2 (`assumed_activation.py`).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.activations import Activation, hermite_coefficients
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.features.rows import DrawnRows
from exhume.metrics.matching import to_norm
from exhume_papers.catalogue.assumed_activation import ASSUMED
from exhume_papers.catalogue.figure import Scale, shown
from exhume_papers.figures.law_figures import LawPanel

SERIES_ORDER = 60
DUPLICATE_RADIUS = 0.2


@dataclass(frozen=True)
class Check:
    """A claim of the paper, the numbers that bear on it, and what they say."""

    name: str
    claim: str
    rows: Sequence[Mapping[str, Any]]
    finding: str
    panel: LawPanel | None = None


def smallest_eigenvalue(scale: Scale) -> Check:
    """Eq. 14: λ_min(Φ Φᵀ) grows like p."""
    d, n, trials = {"quick": (20, 10, 2), "here": (100, 100, 5), "paper": (100, 100, 10)}[scale]
    phi = ASSUMED
    rows = []
    for factor in (2, 5, 10, 20, 50, 100):
        values = [
            torch.linalg.eigvalsh(_gram(_features(samples_on_sphere(n, d, seed), factor * n, seed, phi)))[0].item()
            for seed in range(trials)
        ]
        rows.append({"d": d, "n": n, "p": factor * n, "smallest_eigenvalue": statistics.fmean(values)})
    points = [(float(row["p"]), float(row["smallest_eigenvalue"])) for row in rows]
    finding = f"the smallest eigenvalue grows like p^{slope(points[2:]):.2f} from p = 10n to 100n (d={d}, n={n})"
    panel = LawPanel("Eq. 14", "p", "smallest eigenvalue of Phi Phi^T", {f"d={d}, n={n}": points}, slope=1.0)
    return Check("smallest-eigenvalue", "the smallest eigenvalue of Phi Phi^T is Omega(p)", rows, finding, panel)


def uniform_concentration(scale: Scale) -> Check:
    """Eq. 6: uniformly over x̂ on the sphere, Φ̃ φ̃(x̂) / p is within Õ(√(dn/p)) of its expectation.

    φ̃(x) = φ(Vx) − μ₁ Vx, so the expectation of φ̃(x)ᵀφ̃(y) / p is Σ_{l≠1} μ_l² (xᵀy / d)^l. The supremum over x̂ is
    searched by gradient ascent, from the samples and from random starts: what is found is a lower bound of it.
    """
    sizes, steps, ratios = {
        "quick": ([(10, 5)], 60, (1, 4, 16)),
        "here": ([(20, 10), (40, 10), (20, 40)], 200, (1, 4, 16, 64)),
        "paper": ([(20, 10), (40, 10), (20, 40), (100, 20)], 400, (1, 4, 16, 64, 256)),
    }[scale]
    phi = ASSUMED
    rows = []
    for d, n in sizes:
        for ratio in ratios:
            p = ratio * d * n
            found = _largest_deviation(samples_on_sphere(n, d, 0), p, phi, steps)
            rows.append({"d": d, "n": n, "p": p, "deviation": found, "over_law": found / math.sqrt(d * n / p)})
    series = {
        f"d={d}, n={n}": [(row["p"] / (d * n), row["deviation"]) for row in rows if (row["d"], row["n"]) == (d, n)]
        for d, n in sizes
    }
    slopes = [slope(points) for points in series.values()]
    constants = [row["over_law"] for row in rows]
    finding = (
        f"the largest deviation found falls like (p/(dn))^{statistics.fmean(slopes):.2f}; divided by sqrt(dn/p) it "
        f"stays between {shown(min(constants))} and {shown(max(constants))} over all d, n and p"
    )
    panel = LawPanel("Eq. 6", "p / (dn)", "largest deviation found", series, slope=-0.5)
    return Check("uniform-concentration", "deviations are of order sqrt(dn/p), uniformly", rows, finding, panel)


def no_duplicates(scale: Scale) -> Check:
    """Theorem 2, n = 2: two candidates near the same sample cannot span the features of both.

    Both candidates are held within 0.2 √d of x_1 and moved to span φ(x_1) and φ(x_2) as well as they can; what is left
    of φ(x_2) is compared with what two candidates leave that start around both samples and are free to go anywhere.
    """
    d, trials, steps = {"quick": (8, 2, 150), "here": (30, 5, 400), "paper": (100, 10, 1_000)}[scale]
    phi = ASSUMED
    rows = []
    for ratio in (0.25, 1, 4, 16):
        p = max(4, round(ratio * 2 * d))
        held = [
            _span_of_two(samples_on_sphere(2, d, seed), p, seed, phi, steps, DUPLICATE_RADIUS) for seed in range(trials)
        ]
        free = [_span_of_two(samples_on_sphere(2, d, seed), p, seed, phi, steps, None) for seed in range(trials)]
        rows.append({"d": d, "p": p, "duplicates": statistics.fmean(held), "free": statistics.fmean(free)})
    points = {
        "two near one sample": [(row["p"] / (2 * d), max(row["duplicates"], 1e-9)) for row in rows],
        "free": [(row["p"] / (2 * d), max(row["free"], 1e-9)) for row in rows],
    }
    last = rows[-1]
    finding = (
        f"at p = {last['p'] / (2 * d):g}dn duplicates leave a share of {shown(last['duplicates'])} of the features of "
        f"the second sample unexplained, candidates that are free {shown(last['free'])}"
    )
    panel = LawPanel("Theorem 2, n = 2", "p / (dn)", "share of the features not spanned", points)
    return Check("no-duplicates", "candidates whose features span the data's are distinct", rows, finding, panel)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent of the power law through points, by least squares on logarithms.

    >>> round(slope([(1, 2), (10, 20), (100, 200)]), 6)
    1.0
    """
    xs, ys = zip(*((math.log(x), math.log(y)) for x, y in points), strict=True)
    return float(np.polyfit(xs, ys, 1)[0])


def samples_on_sphere(n: int, d: int, seed: int) -> Float[Tensor, "n d"]:
    config = DataConfig(name="sphere", samples=n, dim=d, seed=seeds.derive(seed, "data"), dtype="float64")
    return load(config).inputs


def weights_of(p: int, d: int, seed: int) -> Float[Tensor, "p d"]:
    return DrawnRows(seeds.derive(seed, "features"), p, d).block(0, p).double()


def _features(x: Float[Tensor, "m d"], p: int, seed: int, phi: Activation) -> Float[Tensor, "m p"]:
    return phi.value(x @ weights_of(p, x.shape[1], seed).T)


def _gram(values: Float[Tensor, "m p"]) -> Float[Tensor, "m m"]:
    return values @ values.T


def _largest_deviation(samples: Float[Tensor, "n d"], p: int, phi: Activation, steps: int) -> float:
    d = samples.shape[1]
    mu = hermite_coefficients(phi, SERIES_ORDER, normalised=True)
    squares = torch.from_numpy(mu**2)
    squares[1] = 0
    rows = weights_of(p, d, 0)

    def nonlinear(x: Float[Tensor, "m d"]) -> Float[Tensor, "m p"]:
        z = x @ rows.T
        return phi.value(z) - mu[1] * z

    of_samples = nonlinear(samples)
    stream = torch.Generator().manual_seed(0)
    starts = torch.cat([samples[:3], torch.randn(5, d, generator=stream, dtype=samples.dtype)])
    moving = starts.clone().requires_grad_()
    optimiser = torch.optim.Adam([moving], lr=0.05)
    best = 0.0
    for _ in range(steps):
        x = to_norm(moving, math.sqrt(d))
        cosines = x @ samples.T / d
        expected = sum((squares[order] * cosines**order for order in range(SERIES_ORDER + 1)), torch.zeros(()))
        deviation = (nonlinear(x) @ of_samples.T / p - expected).norm(dim=1)
        best = max(best, deviation.max().item())
        optimiser.zero_grad()
        (-deviation.sum()).backward()
        optimiser.step()
    return best


def _span_of_two(
    samples: Float[Tensor, "2 d"], p: int, seed: int, phi: Activation, steps: int, radius: float | None
) -> float:
    """The smallest share of ||φ(x_2)||² outside the span of two candidates; within a radius (of √d) of x_1, or free."""
    d = samples.shape[1]
    rows = weights_of(p, d, seed)
    target = phi.value(samples @ rows.T)
    stream = torch.Generator().manual_seed(seed)
    noise = torch.randn(2, d, generator=stream, dtype=samples.dtype)
    start = samples[:1] + 0.1 * noise if radius is not None else samples + 0.5 * noise
    moving = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([moving], lr=0.02)
    best = 1.0
    for _ in range(steps):
        x = moving if radius is None else _within(moving, samples[0], radius * math.sqrt(d))
        candidates = phi.value(to_norm(x, math.sqrt(d)) @ rows.T)
        basis = torch.linalg.qr(candidates.T).Q
        outside = (target - (target @ basis) @ basis.T).square().sum(1) / target.square().sum(1)
        best = min(best, outside[1].item())
        optimiser.zero_grad()
        outside.sum().backward()
        optimiser.step()
    return best


def _within(x: Float[Tensor, "m d"], centre: Float[Tensor, " d"], radius: float) -> Float[Tensor, "m d"]:
    away = x - centre
    return centre + away * (radius / away.norm(dim=1, keepdim=True).clamp_min(radius))
