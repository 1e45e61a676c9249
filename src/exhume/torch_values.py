"""Names of torch's own things, as users write them."""

import torch

from exhume.errors import UsageError


def parse_dtype(name: str) -> torch.dtype:
    kinds = {"float32": torch.float32, "float64": torch.float64}
    if name not in kinds:
        raise UsageError(f"expected --dtype {' or '.join(kinds)}, found {name!r}")
    return kinds[name]


def parse_products(name: str | None) -> torch.dtype | None:
    if name not in (None, "bfloat16"):
        raise UsageError(f"expected --products bfloat16 or none, found {name!r}")
    return torch.bfloat16 if name else None


def parse_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # a "meta" device exists, but holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UsageError(f"expected a device that torch has here, such as cpu, found {name!r}") from None
    return device
