"""Attention that can be differentiated in every direction.

torch's fused attention kernels and its fused encoder layer have backward derivatives at most; jvp (forward derivatives)
and vmap need the plain formula.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def differentiable_attention() -> Iterator[None]:
    """Attention by its plain formula inside the context; the settings from before are restored after it."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
