"""Inputs of unknown norm: a layer with bias reads x̃ = (x, 1), and a homogeneous φ leaves the scale of x̃ open.

For φ(s z) = s φ(z), s > 0 (ReLU and its kin), φ(Wx + b) is φ(W̃ x̃) with rows w̃_k = (w_k, b_k) and x̃ up to its scale,
which goes to the coefficient: the same problem without bias, in d + 1 dimensions. So every attack on rows at one norm
finds x̃, and x = x̃_1:d / x̃_d+1 has its true norm and sign. The bias of the head is the weight of a feature that is 1
for every sample: one more row, (0, ..., 0, 1).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Parametrisation
from exhume.features.extended_rows import ExtendedRows
from exhume.features.rows import Rows
from exhume.observation import Observation


@dataclass(frozen=True, eq=False)
class Homogeneous:
    """x = x̃_1:d / x̃_d+1 with x̃ = U z; `inner` is U, all of R^(d+1) if None."""

    d: int
    inner: Parametrisation | None = None

    @property
    def r(self) -> int:
        return self.d + 1 if self.inner is None else self.inner.r

    def lift(self, coordinates: Float[Tensor, "m r"]) -> Float[Tensor, "m d"]:
        extended = coordinates if self.inner is None else self.inner.lift(coordinates)
        last = extended[:, -1:]
        tiny = torch.finfo(last.dtype).tiny ** 0.5
        return extended[:, :-1] / torch.where(last.abs() < tiny, tiny, last)

    def lower(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m r"]:
        extended = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
        return extended if self.inner is None else self.inner.lower(extended)


def tells_norms(observation: Observation) -> bool:
    """Whether norms are part of what is found: nobody knows them, and a bias under a homogeneous φ tells them."""
    features = observation.features
    unknown = observation.knowledge.norm is None and not features.is_network
    return unknown and observation.ridge.activation.homogeneous and features.bias is not None


def in_homogeneous_coordinates(observation: Observation, with_constant: bool = True) -> Observation:
    """The same weights over φ(W̃ x̃). `with_constant`: the bias of the head, where it is seen, is one weight more."""
    features = observation.ridge
    assert features.bias is not None
    bias, initial = observation.output_bias, observation.initial_rows
    constant = with_constant and bias is not None
    weights = observation.weights
    if constant and bias is not None:
        weights = torch.cat([bias.to(weights)[:, None], weights], dim=1)
    before: Rows | None = None
    if initial is not None and observation.initial_bias is not None:
        before = ExtendedRows(initial, observation.initial_bias, constant)
    return replace(
        observation,
        features=replace(features, rows=ExtendedRows(features.rows, features.bias, constant), bias=None),
        weights=weights,
        image_shape=None,
        head=None if constant else observation.head,
        initial_rows=before,
        initial_bias=None,
        output_bias=None,
        subspace=None if observation.subspace is None else _with_last(observation.subspace),
        layers=(),
    )


def _with_last(columns: Float[Tensor, "d r"]) -> Float[Tensor, "e s"]:
    """Columns that span (x, 1) for every x in the span of the given ones."""
    return torch.block_diag(columns, torch.ones(1, 1, dtype=columns.dtype, device=columns.device))
