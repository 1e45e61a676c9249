"""Lemma B.4, on which Theorem 1 rests, put to numbers.

For samples x_i on the sphere of radius √d, c = X x̂ / d and C = max_i |c_i|: uniformly over x̂ of norm √d and l ≥ 2,

    ‖c^∘l‖₂ ≤ C^(l−1) + O(d^−0.1)

(Eq. 7; Eq. 50 has C^(d−1), which its proof does not give). Equality holds for the sum of k orthogonal samples. The
excess of the left over C^(l−1) is searched by gradient ascent, so what is found is a lower bound of the supremum.
"""

import itertools
import math

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.metrics.matching import to_norm
from exhume_papers.catalogue.figure import Scale, shown
from exhume_papers.catalogue.theory import Check, samples_on_sphere, slope
from exhume_papers.figures.law_figures import LawPanel

ORDERS = (2, 3, 4)
MOST_SUMMED = 8


def powers_of_cosines(scale: Scale) -> Check:
    dims, steps = {"quick": ((20, 80), 60), "here": ((50, 100, 200, 400, 800), 200), "paper": ((100, 400, 1600), 400)}[
        scale
    ]
    rows = []
    for d, order in itertools.product(dims, ORDERS):
        excess = largest_excess(samples_on_sphere(d, d, 0), order, steps)
        rows.append({"d": d, "n": d, "order": order, "excess": excess})
    series = {f"l={order}": [(row["d"], row["excess"]) for row in rows if row["order"] == order] for order in ORDERS}
    slopes = {order: slope(series[f"l={order}"]) for order in ORDERS}
    last = {row["order"]: row["excess"] for row in rows if row["d"] == dims[-1]}
    told = ", ".join(f"{shown(last[order])} for l = {order} (falls like d^{slopes[order]:.2f})" for order in ORDERS)
    finding = f"largest excess found at n = d = {dims[-1]}: {told}"
    panel = LawPanel("Lemma B.4, n = d", "d", "largest excess over C^(l-1)", series, slope=-0.1)
    return Check("powers-of-cosines", "the excess over C^(l-1) is O(d^-0.1) (Lemma B.4)", rows, finding, panel)


def largest_excess(samples: Float[Tensor, "n d"], order: int, steps: int) -> float:
    """The largest ‖c^∘l‖₂ − C^(l−1) that gradient ascent finds, at least 1e-12."""
    d = samples.shape[1]
    moving = _starts(samples).clone().requires_grad_()
    optimiser = torch.optim.Adam([moving], lr=0.02)
    best = 1e-12
    for _ in range(steps):
        cosines = to_norm(moving, math.sqrt(d)) @ samples.T / d
        sizes = cosines.abs()
        excess = sizes.pow(2 * order).sum(dim=1).sqrt() - sizes.amax(dim=1).pow(order - 1)
        best = max(best, excess.max().item())
        optimiser.zero_grad()
        (-excess.sum()).backward()
        optimiser.step()
    return best


def _starts(samples: Float[Tensor, "n d"]) -> Float[Tensor, "m d"]:
    """Sums of 1, 2, ... samples that lean towards each other, with signs, picked greedily; and noise."""
    total, left = samples[0].clone(), torch.ones(len(samples), dtype=torch.bool)
    left[0] = False
    sums = [total]
    for _ in range(min(MOST_SUMMED, len(samples)) - 1):
        leaning = (samples @ total).masked_fill(~left, 0.0)
        chosen = int(leaning.abs().argmax())
        total = total + torch.sign(leaning[chosen]) * samples[chosen]
        left[chosen] = False
        sums.append(total)
    stream = torch.Generator().manual_seed(0)
    noise = torch.randn(4, samples.shape[1], generator=stream, dtype=samples.dtype)
    return torch.cat([torch.stack(sums), noise])
