"""Outputs of a head that do not repeat each other: the two of a two-class cross-entropy move oppositely."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.observation import REPEATED


@dataclass(frozen=True, eq=False, repr=False)
class DistinctOutputs:
    """`rows` = directionsᵀ × the outputs."""

    directions: Float[Tensor, "k q"]
    rows: Float[Tensor, "q h"]


def distinct_outputs(change: Float[Tensor, "k h"]) -> DistinctOutputs:
    """Error signals of outputs that repeat each other have one dimension fewer."""
    left, values, _ = torch.linalg.svd(change, full_matrices=False)
    directions = left[:, values > REPEATED * values[0]]
    return DistinctOutputs(directions, directions.T @ change)
