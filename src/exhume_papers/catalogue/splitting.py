"""Why KKT equations have many solutions and those of a known feature map few: one sample split in two, x ± δ.

*KKT.* A homogeneous two-layer ReLU network of large margin is Σ_i λ_i y_i ∇f(x_i): the row of unit k is w_k = a_k Σ_i
λ_i y_i [w_k·x_i > 0] x_i, and a_k = Σ_i λ_i y_i relu(w_k·x_i). Given which units fire, both are linear in the samples,
so x_i may be split into x_i + δ and x_i − δ with λ_i / 2 each if no unit changes sides. All w_k lie in the span of the
samples, so a δ across that span changes no w_k·x at all: δ may be of any size. Outputs, hence margins, stay as well.

*Known features.* The rows v_k were drawn without regard to the data and span the whole space. A row that has x + δ and
x − δ on different sides sees the split, and there are such rows for every δ.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.activations import activation
from exhume.metrics.matching import to_norm
from exhume_papers.catalogue.figure import Scale, shown
from exhume_papers.catalogue.theory import Check, samples_on_sphere, weights_of

SIZES = (0.1, 0.3, 1.0, 10.0)
"""‖δ‖ over √d."""


def sample_split(scale: Scale) -> Check:
    n, d, trials = {"quick": (3, 12, 2), "here": (10, 100, 5), "paper": (20, 200, 10)}[scale]
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        kkt = max(kkt_left(n, d, size, seed) for seed in range(trials))
        features = min(features_left(n, d, size, seed) for seed in range(trials))
        rows.append({"n": n, "d": d, "delta": size, "kkt": kkt, "known_features": features})
    told = ", ".join(f"{shown(row['known_features'])} at {row['delta']:g}" for row in rows)
    most = max(row["kkt"] for row in rows)
    finding = (
        f"a sample split into x ± delta leaves a share of at most {shown(most)} of the KKT equations unexplained, for "
        f"delta of up to {SIZES[-1]:g} norms; of weights over known features, p = 4dn, at least {told}"
    )
    return Check("sample-split", "KKT equations have infinitely many solutions (arXiv 2509.21296)", rows, finding)


def kkt_left(n: int, d: int, size: float, seed: int, units: int = 200) -> float:
    """The share of both layers' stationarity, outputs included, that changes if the first sample is split across the
    span. Units are any combinations of the samples, as those of a KKT point are."""
    stream = seeds.generator(seed, "network")
    samples = samples_on_sphere(n, d, seed)
    units_in_span = torch.randn(units, n, generator=stream, dtype=samples.dtype) @ samples / math.sqrt(d)
    signed = torch.randn(n, generator=stream, dtype=samples.dtype)  # lambda_i y_i
    head = torch.randn(units, generator=stream, dtype=samples.dtype)
    delta = _across(samples, size, stream)
    split = torch.cat([samples[:1] + delta, samples[:1] - delta, samples[1:]])
    halves = torch.cat([signed[:1] / 2, signed[:1] / 2, signed[1:]])
    before = _stationarity(units_in_span, head, samples, signed)
    after = _stationarity(units_in_span, head, split, halves)
    return float((after - before).square().sum() / before.square().sum())


def features_left(n: int, d: int, size: float, seed: int) -> float:
    """The share of θ outside the span of the features once the first sample is split, with the best coefficients."""
    phi, samples, rows = activation("relu"), samples_on_sphere(n, d, seed), weights_of(4 * d * n, d, seed)
    stream = seeds.generator(seed, "noise")
    coefficients = torch.randn(n, generator=stream, dtype=samples.dtype).sign()
    weights = coefficients @ phi.value(samples @ rows.T)
    delta = _across(samples, size, stream)
    split = torch.cat([samples[:1] + delta, samples[:1] - delta, samples[1:]])
    basis = torch.linalg.qr(phi.value(split @ rows.T).T).Q
    left = weights - basis @ (basis.T @ weights)
    return float(left.square().sum() / weights.square().sum())


def _stationarity(
    units: Float[Tensor, "h d"], head: Float[Tensor, " h"], samples: Float[Tensor, "m d"], signed: Float[Tensor, " m"]
) -> Float[Tensor, " q"]:
    """Σ_i λ_i y_i ∇f(x_i) for both layers, and Σ_i λ_i y_i f(x_i)."""
    reached = samples @ units.T
    first = head[:, None] * ((reached > 0).to(reached.dtype) * signed[:, None]).T @ samples
    second = signed @ reached.clamp_min(0)
    return torch.cat([first.flatten(), second, (second @ head)[None]])


def _across(samples: Float[Tensor, "n d"], size: float, stream: torch.Generator) -> Float[Tensor, "1 d"]:
    """A random direction that is orthogonal to all samples, of a norm of size · √d."""
    d = samples.shape[1]
    noise = torch.randn(1, d, generator=stream, dtype=samples.dtype)
    basis = torch.linalg.qr(samples.T).Q
    return to_norm(noise - noise @ basis @ basis.T, size * math.sqrt(d))
