"""How a model wants its images prepared, as config.json tells it: that is published with a model, its data are not."""

from typing import Any

import torch
from torch import Tensor

from exhume.data.dataset import CIFAR10_SPLIT_MEAN, CIFAR10_SPLIT_STD, Preparation
from exhume.data.image_scales import Norm
from exhume.errors import ExhumeError
from exhume.experiments.documents import is_number

KEY = "preparation"
_BY_NAME = {"none": ((0.0,), (1.0,)), "cifar10-split": (CIFAR10_SPLIT_MEAN, CIFAR10_SPLIT_STD)}


def described_preparation(used: Preparation) -> dict[str, Any]:
    """The entry of config.json; empty where the rows came from no images."""
    if used.image_shape is None:
        return {}
    return {KEY: {"mean": used.mean.double().tolist(), "std": used.std.double().tolist()}}


def preparation_of(config: dict[str, Any], image_shape: tuple[int, int, int]) -> Preparation | None:
    """For images that the model never saw; None where config.json does not tell."""
    data, kept = config.get("data") or {}, config.get(KEY)
    numbers: tuple[Any, Any] | None
    if kept is None:
        numbers = _BY_NAME.get(str(data.get("standardise")))
    else:
        numbers = (kept.get("mean"), kept.get("std")) if isinstance(kept, dict) else (None, None)
    if numbers is None:
        return None
    dtype = torch.float64 if data.get("dtype") == "float64" else torch.float32
    mean, std = (_channels(values, image_shape[0], dtype) for values in numbers)
    if not bool((std > 0).all()):
        raise ExhumeError("expected positive standard deviations in the preparation of config.json, found others")
    norm: Norm = "keep" if data.get("norm") == "keep" else "sqrt-d"
    return Preparation(mean, std, torch.ones(0), image_shape, standardise="none", norm=norm)


def _channels(values: Any, channels: int, dtype: torch.dtype) -> Tensor:
    if not isinstance(values, list | tuple) or len(values) not in (1, channels) or not all(map(is_number, values)):
        raise ExhumeError(
            f"expected 1 or {channels} numbers in the preparation of config.json, found {str(values)[:80]!r}"
        )
    return torch.tensor(values, dtype=dtype).expand(channels).clone()
