"""Large matrices whose memory is used again.

An attack makes and drops several m × p matrices per iteration. Fresh memory for each of them costs a page fault every
4 kB, which takes as long as the products that fill it. So what the last owner of such a matrix lets go of is kept for
the next one. Lifetimes are those of torch's own storages: memory comes back when the last view of it is gone.
"""

import math
import weakref

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

SMALLEST_BYTES = 2**20  # below this, the allocator of the system is as good
SPARE_BLOCKS = 4

_spare: list[np.ndarray] = []


class _Lease(np.ndarray):
    """Memory while somebody uses it. A class of its own because plain arrays cannot be watched."""


def empty(m: int, p: int, like: Tensor) -> Float[Tensor, "m p"]:
    """An uninitialised m × p matrix in the type and on the device of `like`."""
    size = m * p * like.element_size()
    if like.device.type != "cpu" or size < SMALLEST_BYTES:
        return torch.empty(m, p, dtype=like.dtype, device=like.device)
    block = _take(size)
    lease = block.view(_Lease)
    weakref.finalize(lease, _give_back, block)
    return torch.from_numpy(lease).view(like.dtype)[: m * p].view(m, p)


def _take(size: int) -> np.ndarray:
    """The smallest spare block that is large enough, unless most of it would lie idle; else a new one."""
    fitting = [index for index, block in enumerate(_spare) if size <= block.nbytes <= 2 * size]
    if fitting:
        return _spare.pop(min(fitting, key=lambda index: _spare[index].nbytes))
    return np.empty(math.ceil(size / 64) * 64, dtype=np.uint8)


def _give_back(block: np.ndarray) -> None:
    _spare.append(block)
    del _spare[:-SPARE_BLOCKS]


def release() -> None:
    """Hands spare memory back to the system: at the end of an attack."""
    _spare.clear()
