"""Synthetic rows: uniform on the sphere of radius sqrt(d), or on its cut with a random subspace."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhume.data.config import DEFAULT_NOISE, DataConfig, DataSource, LabelRule, refuse
from exhume.data.dataset import DTYPES, Dataset, Preparation
from exhume.errors import UsageError
from exhume_papers.machine import check_fits

# Mixed into the seed, so that a victim drawn with the same number does not get the very same Gaussians as the data.
DATA_STREAM = 0x64617461


@dataclass(frozen=True, eq=False, repr=False)
class SphereSample:
    rows: Float[Tensor, "n d"]
    labels: Float[Tensor, " n"]


def draw_sphere(
    samples: int, dim: int, subspace: int | None, label_rule: LabelRule, noise: float, seed: int
) -> SphereSample:
    """Rows x_i uniform with ||x_i|| = sqrt(d), and their labels, in double precision.

    With a subspace of r dimensions x_i = Q z_i, where Q (d × r) has orthonormal columns and z_i is uniform on the
    sphere of radius sqrt(d) in R^r. Labels with g ~ N(0, I/d): "linear" is y = Xg + eps with eps ~ N(0, noise), "sign"
    is y = sign(Xg).
    """
    state = np.random.SeedSequence([DATA_STREAM, seed]).generate_state(1, dtype=np.uint64)
    generator = torch.Generator().manual_seed(int(state[0]) >> 1)
    rank = dim if subspace is None else subspace
    gaussian = torch.randn(samples, rank, generator=generator, dtype=torch.float64)
    rows = gaussian * (math.sqrt(dim) / gaussian.norm(dim=1, keepdim=True))
    if subspace is not None:
        basis = torch.linalg.qr(torch.randn(dim, rank, generator=generator, dtype=torch.float64)).Q
        rows = rows @ basis.T
    direction = torch.randn(dim, generator=generator, dtype=torch.float64) / math.sqrt(dim)
    clean = rows @ direction
    if label_rule == "sign":
        return SphereSample(rows, torch.where(clean >= 0, 1.0, -1.0).to(torch.float64))
    errors = torch.randn(samples, generator=generator, dtype=torch.float64)
    return SphereSample(rows, clean + math.sqrt(noise) * errors)


def _load(config: DataConfig) -> Dataset:
    assert config.dim is not None, "a configuration of the sphere has a dimension"
    dtype = DTYPES[config.dtype]
    check_fits(8 * config.samples * config.dim, "samples")
    drawn = draw_sphere(config.samples, config.dim, config.subspace, config.label_rule, config.noise, config.seed)
    nothing, kept = torch.zeros(0, dtype=dtype), torch.ones(config.samples, dtype=dtype)
    inside = "" if config.subspace is None else f" inside a random {config.subspace}-dimensional subspace"
    rule = "sign(Xg)" if config.label_rule == "sign" else f"Xg + noise of variance {config.noise:g}"
    return Dataset(
        inputs=drawn.rows.to(dtype),
        labels=drawn.labels.to(dtype),
        class_names=(),
        class_index=torch.full((config.samples,), -1),
        image_shape=None,
        preparation=Preparation(nothing, nothing + 1, kept, None, "none", "sqrt-d"),
        description=(
            f"sphere: {config.samples} rows uniform on the sphere of radius sqrt(d) in {config.dim} dimensions"
            f"{inside}, labels {rule}"
        ),
    )


def _check(config: DataConfig) -> None:
    if config.dim is None:
        raise UsageError("expected the dimension of the sphere, found none; give dim")
    if config.subspace is not None and config.subspace > config.dim:
        raise UsageError(f"expected a subspace of at most dim = {config.dim} dimensions, found {config.subspace}")
    if config.label_rule == "sign" and config.noise not in (0, DEFAULT_NOISE):
        raise UsageError(f"expected no noise with the label rule 'sign', found noise {config.noise:g}")
    images_only = {
        "classes": config.classes != (),
        "per_class": config.per_class is not None,
        "side": config.side is not None,
        "standardise": config.standardise != "none",
        "norm": config.norm != "sqrt-d",
    }
    refuse(config, images_only, "is for images")


SPHERE = DataSource("sphere", _load, _check, {"standardise": "none"})
