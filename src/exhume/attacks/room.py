"""Budgets of memory that an attack cannot keep to are refused before it begins."""

import math

import torch

from exhume.attacks.modules.room import NetworkSizes
from exhume.attacks.problem import Method
from exhume.attacks.ranks import Ranks
from exhume.attacks.ridge.room import Sizes, least_bytes
from exhume.attacks.silent.attack import SilentUnits
from exhume.attacks.silent.layers import silent_bytes
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures
from exhume.observation import Observation


def require_room(
    observation: Observation, method: Method, memory_bytes: int | None, dtype: torch.dtype, ranks: Ranks
) -> None:
    """Refuses a budget that is too small, and says which one would do."""
    if memory_bytes is None:
        return
    features = observation.features
    if isinstance(method, SilentUnits):
        least = silent_bytes(observation)
    elif isinstance(features, ModuleFeatures):
        least = NetworkSizes.of(observation, dtype).least_bytes
    else:
        least = least_bytes(Sizes.of(observation, features.p, method.few_rows, dtype, False, ranks))
    if memory_bytes < least:
        told = observation.knowledge.samples
        samples = "" if told is None else f"{told:,} samples and "
        raise UsageError(
            f"expected a memory of at least {_mebibytes(least)} for {samples}p = {features.p:,}, "
            f"d = {observation.d:,}, found {_mebibytes(memory_bytes)}; give --memory {_mebibytes(least)}"
        )


def _mebibytes(size: int) -> str:
    """
    >>> _mebibytes(2**30), _mebibytes(2**20 + 1)
    ('1024M', '2M')
    """
    return f"{math.ceil(size / 2**20)}M"
