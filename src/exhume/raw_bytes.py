"""The bytes of a tensor, for digests and checksums."""

import torch
from torch import Tensor


def raw_bytes(values: Tensor) -> bytes:
    """In the order of its elements, of any dtype: numpy alone has no bfloat16.

    >>> matrix = torch.arange(6.0).reshape(3, 2)
    >>> raw_bytes(matrix[1:2, 1]) == raw_bytes(torch.tensor([3.0]))
    True
    """
    flat = values.detach().cpu().flatten()
    if flat.stride() != (1,):  # one number that was cut out of a matrix counts as contiguous, and keeps its stride
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().tobytes()
