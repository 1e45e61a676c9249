"""The span of the training data, read off the change of the first layer's weights.

Every step of gradient descent (stochastic, with momentum, with weight decay) adds Σ_i c_i x_iᵀ to the rows of the first
layer and shrinks them, so that after any number of steps

    W₁(T) = c W₁(0) + Cᵀ X,        c = 1 without weight decay, (1 − ηλ)^T with it:

the row space of W₁(T) − c W₁(0) lies in the span of the samples exactly. Its rank r ≤ n shows as a gap in the singular
values: above it the data, below it the rounding of the weights. Adam divides each weight's gradient by its own size and
leaves no such gap; it is said so, and the change is then not used.

*One sweep.* With Gaussian Ω (s × h) the sketches Ω W₁(T) and Ω W₁(0) (s × d each) have the row spaces of the layers, as
far as s numbers show them; layers of few rows are taken as they are. Everything else is done on the sketches.

*An unknown c.* Outside the span the trained layer is c times the initial one. So c and the span are found in turns:
c = ⟨W₁(T) P, W₁(0) P⟩ / ||W₁(0) P||² with P the projection off the span found so far, which starts as nothing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.errors import ExhumeError
from exhume.features.rows import Rows, blocks

SKETCH = 1024  # rows of a sketch: ranks up to half of it can be told
GAP = 10.0  # a ratio of consecutive singular values that no noise has
LOOKED_AT = 0.75  # the smallest singular values of noise fall off by themselves
PLAIN = 1e-7  # c this close to 1 is plain descent, up to rounding
CLEARER = 3.0  # by how much weight decay has to widen the gap to be believed
SETTLED = 1e-9
TURNS = 20


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """What the change of a first layer shows. `gap` is the ratio of the singular values on both sides of the rank.

    `exact`: there is a gap; otherwise the subspace is that of the largest singular values, and not to be used.
    """

    subspace: Subspace
    scale: float
    gap: float
    exact: bool

    @property
    def rank(self) -> int:
        return self.subspace.r

    def describe(self) -> str:
        if not self.exact:
            return (
                f"first layer: its change has no low rank (the largest gap is a factor {self.gap:.2g}), as after Adam "
                "or from other initial weights; it is not used"
            )
        decay = "" if self.scale == 1 else f", {self.scale:.4g} of the initial weights left by weight decay"
        return f"first layer: its change spans {self.rank} dimensions (a gap of {self.gap:.1e}){decay}"


def first_layer_subspace(trained: Rows, initial: Rows, sketch: int = SKETCH) -> FirstLayer:
    """The span of the data from a first layer before and after training (h × d each). One sweep over both."""
    if (trained.p, trained.d) != (initial.p, initial.d):
        raise ExhumeError(
            f"expected an initial first layer of shape {[trained.p, trained.d]}, found {[initial.p, initial.d]}"
        )
    after, before = _sketches(trained, initial, sketch)
    plain = _spectrum(after - before)
    scale, decayed = _without_decay(after, before, plain.basis if plain.exact else None)
    if abs(scale - 1) < PLAIN or not decayed.gap > CLEARER * plain.gap:
        return plain.at(1.0)
    return decayed.at(scale)


@dataclass(frozen=True, eq=False)
class _Spectrum:
    directions: Float[Tensor, "q d"]
    rank: int
    gap: float

    @property
    def exact(self) -> bool:
        return self.gap >= GAP

    @property
    def basis(self) -> Float[Tensor, "d r"]:
        return self.directions[: self.rank].T

    def at(self, scale: float) -> FirstLayer:
        return FirstLayer(Subspace(self.basis.contiguous()), scale, self.gap, self.exact)


def _spectrum(change: Float[Tensor, "s d"]) -> _Spectrum:
    """The rank is where the last gap is: samples of small coefficients are still far above rounding.

    Units that never fired, and inputs that were always zero, did not change at all: zeros behind the rounding of the
    others would pass for a gap.
    """
    _, values, directions = torch.linalg.svd(change, full_matrices=False)
    alive = min(int(change.any(dim=side).sum()) for side in (0, 1))
    ratios = gaps(values[: max(1, alive)])
    wide = (ratios >= GAP).nonzero()[:, 0]
    place = int(wide[-1]) if len(wide) else int(ratios.argmax())
    return _Spectrum(directions, place + 1, float(ratios[place]))


def gaps(values: Float[Tensor, " q"]) -> Float[Tensor, " looked"]:
    """Ratios of consecutive singular values, as far as they say something: at most LOOKED_AT of them."""
    looked = max(1, int(LOOKED_AT * (len(values) - 1)))
    floor = torch.finfo(values.dtype).eps * values[0].clamp_min(torch.finfo(values.dtype).tiny)
    return values[:looked] / values[1 : looked + 1].clamp_min(floor) if len(values) > 1 else values.new_ones(1)


def _without_decay(
    after: Float[Tensor, "s d"], before: Float[Tensor, "s d"], basis: Float[Tensor, "d r"] | None
) -> tuple[float, _Spectrum]:
    """c and the span, in turns until c no longer moves."""
    scale, found = 1.0, None
    for _ in range(TURNS):
        outside = (after, before) if basis is None else (_off(after, basis), _off(before, basis))
        last, scale = scale, _multiple(*outside)
        if found is not None and abs(scale - last) < SETTLED:
            break
        found = _spectrum(after - scale * before)
        basis = found.basis
    assert found is not None
    return scale, found


def _multiple(after: Float[Tensor, "s d"], before: Float[Tensor, "s d"]) -> float:
    """The multiple of the one that is closest to the other."""
    return float((after * before).sum() / before.square().sum().clamp_min(torch.finfo(before.dtype).tiny))


def _off(rows: Float[Tensor, "s d"], basis: Float[Tensor, "d r"]) -> Float[Tensor, "s d"]:
    return rows - (rows @ basis) @ basis.T


def _sketches(trained: Rows, initial: Rows, size: int) -> tuple[Float[Tensor, "s d"], Float[Tensor, "s d"]]:
    """Ω W₁(T) and Ω W₁(0) in float64, with the same Ω; the layers themselves where they have no more rows."""
    few = trained.p <= size
    stream = torch.Generator().manual_seed(0)
    after = torch.zeros(trained.p if few else size, trained.d, dtype=torch.float64)
    before = torch.zeros_like(after)
    for block in blocks(trained, min(trained.block_rows, initial.block_rows)):
        ends = (rows.block(block.start, block.stop).double().cpu() for rows in (trained, initial))
        if few:
            after[block], before[block] = ends
            continue
        mixing = torch.randn(size, block.stop - block.start, generator=stream, dtype=torch.float64)
        for total, values in zip((after, before), ends, strict=True):
            total.addmm_(mixing, values)
    return after, before
