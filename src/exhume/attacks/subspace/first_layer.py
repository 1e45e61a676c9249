"""The span of the training data, read off the change of the first layer's weights.

Every step of gradient descent (stochastic, with momentum, with weight decay) adds Σ_i c_i x_iᵀ to the rows of the first
layer and shrinks them, so that after any number of steps

    W₁(T) = c W₁(0) + Cᵀ X,        c = 1 without weight decay, (1 − ηλ)^T with it:

the row space of W₁(T) − c W₁(0) lies in the span of the samples exactly. Its rank r ≤ n is found with that of any layer
(`foundation/spectrum.py`). Adam divides each weight's gradient by its own size and leaves no low rank; it is said so,
and the change is then not used.

*One sweep.* With Gaussian Ω (s × h, entries of variance 1/h) the sketches Ω W₁(T) and Ω W₁(0) (s × d each) have the row
spaces of the layers, as far as s numbers show them, and the rounding of a weight keeps its size; layers of few rows are
taken as they are. Everything else is done on the sketches.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.spectrum import Spectrum, rounding, spectrum_of_change
from exhume.errors import ExhumeError
from exhume.features.rows import Rows, blocks

SKETCH = 1024  # rows of a sketch: ranks up to half of it can be seen


def first_layer_spectrum(trained: Rows, initial: Rows, sketch: int = SKETCH) -> Spectrum:
    """What a first layer before and after training (h × d each) shows of the data. One sweep over both."""
    if (trained.p, trained.d) != (initial.p, initial.d):
        raise ExhumeError(
            f"expected an initial first layer of shape {[trained.p, trained.d]}, found {[initial.p, initial.d]}"
        )
    return spectrum_of_change(*_sketches(trained, initial, sketch))


def _sketches(trained: Rows, initial: Rows, size: int) -> tuple[Float[Tensor, "s d"], Float[Tensor, "s d"], float]:
    """Ω W₁(T) and Ω W₁(0) in float64, with the same Ω, and the rounding of a trained weight; the layers themselves
    where they have no more rows."""
    few = trained.p <= size
    stream = torch.Generator().manual_seed(0)
    after = torch.zeros(trained.p if few else size, trained.d, dtype=torch.float64)
    before, unit = torch.zeros_like(after), 0.0
    for block in blocks(trained, min(trained.block_rows, initial.block_rows)):
        ends = [rows.block(block.start, block.stop).cpu() for rows in (trained, initial)]
        unit = max(unit, rounding(ends[0]))
        # rows that are the same were not trained, as that of a constant feature: weight decay left all of them
        changed = (ends[0] != ends[1]).any(dim=1, keepdim=True)
        ends = [values * changed for values in ends]
        if few:
            after[block], before[block] = ends
            continue
        mixing = torch.randn(size, block.stop - block.start, generator=stream, dtype=torch.float64) / trained.p**0.5
        for total, values in zip((after, before), ends, strict=True):
            total.addmm_(mixing, values.double())
    return after, before, unit


def first_layer_note(shown: Spectrum) -> str:
    """One sentence for the page."""
    return f"first layer: {shown.describe() if shown.exact else shown.no_span() + '; it is not used'}"
