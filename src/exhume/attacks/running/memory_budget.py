"""Budgets of memory that an attack cannot keep to are refused before it begins."""

import math

import torch

from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.ranks import Ranks
from exhume.errors import UsageError
from exhume.observation import Observation


def require_room(
    observation: Observation, method: AnyMethod, memory_bytes: int | None, dtype: torch.dtype, ranks: Ranks
) -> None:
    """Refuses a budget that is too small, and says which one would do."""
    if memory_bytes is None:
        return
    least = method.least_bytes(observation, dtype, ranks)
    if memory_bytes < least:
        known_count = observation.knowledge.samples
        samples = "" if known_count is None else f"{known_count:,} samples and "
        raise UsageError(
            f"expected a memory of at least {_mebibytes(least)} for {samples}p = {observation.features.p:,}, "
            f"d = {observation.d:,}, found {_mebibytes(memory_bytes)}; give --memory {_mebibytes(least)}"
        )


def _mebibytes(size: int) -> str:
    """
    >>> _mebibytes(2**30), _mebibytes(2**20 + 1)
    ('1024M', '2M')
    """
    return f"{math.ceil(size / 2**20)}M"
