"""The rank of a layer's change: how many samples it holds, and how much of it is rounding.

L = C X̃ has rank n where n ≤ min(h, d + 1), and the singular values fall off there to the rounding of the weights: 2^-24
of a weight per step for float32, 2^-11 once for a file in float16. The whole spectrum is looked at, without the units
and columns that did not change at all: those never fired, or were always zero (the border of a picture), and hold no
rounding either.

The rank is the last place where neighbouring singular values differ by a factor and what comes after is flat, as
rounding is; values below the rounding that the format must have left are raised to it. The last values of any noise
fall off by themselves, and those of rounding do where units changed in few columns: what comes after has to be a
quarter of all values that may be noise. These are the ones as small as rounding, or all where it is larger (noise,
Adam). A sample whose trace is below the rounding is not in the rank. With weight decay, L = W̃(T) − c W̃(0), and c is
found with the span, in turns: outside the span the published layer is c times the start. Where c is too far from 1 for
that, it is read off first: W̃(T) v = c W̃(0) v for every v outside of the span, so that c is the repeated eigenvalue of
W̃(0)⁺ W̃(T), with d + 1 − n copies. All of it asks that biases decay with the matrix, as torch does it. Where a script
leaves them out, they are another combination of the samples, and the rank is n + 1.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.layer_states import LayerStates

GAP = 2.0  # of neighbouring singular values; rounding alone has ratios near 1
SURE_GAP = 15.0  # 1,000 digits on 64 pixels fall off by 10.2 at no rank of theirs; checkpoints of 20 digits by 20
ROUNDED = 300.0  # times one rounding: steps add up, to 18 after 600 of them and 42 after 3,000
WHITE = 1.15  # by how much the largest singular value of white noise may exceed sigma (sqrt h + sqrt c)
FLAT = 30.0  # what is left may begin this far above its median: rounding does by up to 19, the change of Adam by 80
CLEARER = 3.0  # by how much weight decay has to widen the gap to be believed
PLAIN = 1e-7  # c this close to 1 is plain descent, up to rounding
TURNS = 20
REPEATED = 3  # copies of an eigenvalue that are asked for: two are close by chance, and more leave n nearer to d out
MOST_COLUMNS = 512  # columns that eigenvalues are taken of, for seconds; of more, so many random combinations
NEARLY_REAL = 0.01  # rounding may make pairs of the copies, which are real: with an imaginary part below this share
RESOLUTION = 3e-8  # of the largest singular value: what is below is the rounding of the Gram matrix in float64
NOISE_SHARE = 0.25  # of what may be noise: 4 of 72 and 1 of 74 fell off by factors of 2 and 5 where 8 samples were


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """`values` are all singular values, `directions` the right singular vectors of the first `rank` of them.

    `noise`: the size of one entry of L that is not explained by the rank. `scale`: c."""

    values: Float[Tensor, " q"]
    directions: Float[Tensor, "c r"]
    rank: int
    gap: float
    noise: float
    scale: float = 1.0
    taken: float = 1.0
    explained: bool = True
    """Whether what is left is rounding or white noise. Otherwise samples may hide in it, and others may be blends."""

    @property
    def clear(self) -> bool:
        """Whether the values fall off somewhere and stay there. A change of full rank has no such place."""
        return self.rank < len(self.values)

    @property
    def sure(self) -> bool:
        """Whether there is a rank to speak of: a smaller gap is that of any spectrum here and there."""
        return self.clear and self.gap >= SURE_GAP

    @property
    def exact(self) -> bool:
        """Whether the span of the directions is that of the samples: a clear rank, and nothing beside it but noise."""
        return self.sure and self.explained

    @property
    def subspace(self) -> Subspace:
        return Subspace(self.directions)

    def describe(self) -> str:
        if not self.sure:
            return self.no_span()
        return f"its change has rank {self.rank} (a gap of {self.gap:.1e}){self._decay}"

    def no_span(self) -> str:
        """What is said where the span is not used: the likely causes."""
        rank = "no rank that stands out (a gap of" if self.clear else "full rank (the largest gap is a factor"
        return (
            f"its change has {rank} {self.gap:.2g}){self._decay}: more samples than dimensions, an optimiser such as "
            "Adam, augmentation, noise, or another start"
        )

    @property
    def _decay(self) -> str:
        if self.scale == self.taken:
            return ""
        return f", {self.scale:.4g} of the {'start left' if self.taken else 'weights put in'} by weight decay"


def spectrum(states: LayerStates, rows: Tensor | None = None) -> Spectrum:
    """Of the rows of these units (None: all). c is looked for where the layer has a start."""
    chosen = slice(None) if rows is None else rows
    target, taken = states.target[chosen], states.taken
    rounded = states.ends[-1][chosen] if taken else target  # an average of gradients has a rounding of its own
    unit = rounding(rounded)
    if states.start is None:
        return decompose(target.double(), unit, taken, taken)
    before = states.start[chosen].double()
    return spectrum_of_change(target.double() + taken * before, before, unit, taken)


def spectrum_of_change(
    after: Float[Tensor, "h c"], before: Float[Tensor, "h c"], unit: float, taken: float = 1.0
) -> Spectrum:
    """Of W̃(T) − c W̃(0) for `after` and `before`, where c is `taken` unless another one widens the gap.

    Off the span found so far the one is c times the other: c by least squares there, then the span again, until c no
    longer moves. `unit` is the rounding of one weight.
    """
    best = found = decompose(after - taken * before, unit, taken, taken)
    for _ in range(TURNS):
        scale = _left_of(before, after, found.directions if found.clear else None)
        if abs(scale - found.scale) < PLAIN:
            break
        found = decompose(after - scale * before, unit, scale, taken)
    best = found if found.gap > CLEARER * best.gap else best
    if best.exact:
        return best
    repeated = _repeated(after, before, unit, taken)
    return repeated if repeated is not None and repeated.exact and repeated.gap > CLEARER * best.gap else best


def _repeated(after: Float[Tensor, "h c"], before: Float[Tensor, "h c"], unit: float, taken: float) -> Spectrum | None:
    """With the c that is an eigenvalue of W̃(0)⁺ W̃(T) several times over. Columns that nothing taught are left out:
    they are c times the start after any optimiser, and would pass for the complement of a span."""
    taught = (after != taken * before).any(dim=0)
    scale = _repeated_eigenvalue(after[:, taught], before[:, taught])
    if scale is None:
        return None
    taught &= (after - scale * before).square().mean(dim=0).sqrt() > ROUNDED * unit
    if not bool(taught.any()):
        return None
    found = decompose((after - scale * before) * taught, unit, scale, taken)
    if not found.clear:
        return None
    scale = _left_of(before * taught, after * taught, found.directions)
    found = decompose((after - scale * before) * taught, unit, scale, taken)
    # of a square matrix any eigenvalue at all leaves one direction less
    return found if found.rank <= len(found.values) - REPEATED else None


def _repeated_eigenvalue(after: Float[Tensor, "h c"], before: Float[Tensor, "h c"]) -> float | None:
    if after.shape[0] < after.shape[1]:  # W̃(T) W̃(0)⁺ has it too
        after, before = after.T, before.T
    if after.shape[1] > MOST_COLUMNS:
        stream = torch.Generator().manual_seed(0)
        mixing = torch.randn(after.shape[1], MOST_COLUMNS, generator=stream, dtype=after.dtype).to(after.device)
        after, before = after @ mixing, before @ mixing
    values = torch.linalg.eigvals(torch.linalg.pinv(before) @ after)
    real = values.real[values.imag.abs() <= NEARLY_REAL * values.real.abs()].sort().values
    if len(real) < REPEATED:
        return None
    closest = int((real[REPEATED - 1 :] - real[: 1 - REPEATED]).argmin())
    return float(real[closest : closest + REPEATED].median())


def _left_of(before: Float[Tensor, "h c"], after: Float[Tensor, "h c"], basis: Float[Tensor, "c r"] | None) -> float:
    """The multiple of `before` that is closest to `after`, both off the span of the basis."""
    if basis is not None:
        before, after = (rows - (rows @ basis) @ basis.T for rows in (before, after))
    return float((after * before).sum() / before.square().sum().clamp_min(torch.finfo(before.dtype).tiny))


def rounding(weights: Tensor) -> float:
    """The size of the rounding of one stored weight: at least this much of L is noise.

    Told from the values, not from the type: a file in float16 is often read into float32.

    >>> rounding(torch.tensor([1.0, 1.5])) > rounding(torch.tensor([1.1, 1.7]))
    True
    """
    size = float(weights.double().square().mean().sqrt())
    for kind in (torch.bfloat16, torch.float16):
        if torch.equal(weights.to(kind).to(weights.dtype), weights):
            return size * torch.finfo(kind).eps / math.sqrt(12)
    eps = torch.finfo(torch.float32).eps if weights.dtype != torch.float64 else torch.finfo(torch.float64).eps
    return size * eps / math.sqrt(12)


def _last_gap(values: Float[Tensor, " q"], floor: float) -> tuple[int, float]:
    """The rank and the gap there; the number of values, and the largest gap, where none has a flat rest behind it."""
    if len(values) < 2:
        return len(values), 1.0
    ratios, small = values[:-1] / values[1:], int((values <= ROUNDED * floor).sum())
    for place in (ratios >= GAP).nonzero()[:, 0].flip(0).tolist():
        rest = values[place + 1 :]
        noise = small if len(rest) <= small else len(values)
        if len(rest) >= NOISE_SHARE * noise and float(rest[0]) <= FLAT * float(rest.median()):
            return place + 1, float(ratios[place])
    return len(values), float(ratios.max())


def decompose(change: Float[Tensor, "h c"], unit: float, scale: float = 1.0, taken: float = 1.0) -> Spectrum:
    """From the smaller Gram matrix, in float64: exact to 3e-8 of the largest singular value, below any rounding.

    Units that never fired, and columns that were always zero, did not change at all: they hold no rounding either, and
    their zeros behind the flat rest would pass for a gap.
    """
    wide = change.shape[0] < change.shape[1]
    small = change @ change.T if wide else change.T @ change
    energies, vectors = torch.linalg.eigh(small)
    moved = [change.norm(dim=side) for side in (1, 0)]  # L2 leaves 1e-37 of what nothing taught, and no zero
    h, columns = (max(1, int((sizes > RESOLUTION * sizes.max()).sum())) for sizes in moved)
    values, vectors = energies.flip(0).clamp_min(0).sqrt()[: min(h, columns)], vectors.flip(1)
    unseen = RESOLUTION * float(values[0])
    floor = max(unit * (math.sqrt(h) + math.sqrt(columns)), unseen)
    rank, gap = _last_gap(values.clamp_min(floor), floor)
    noise = math.sqrt(float(values[rank:].square().sum()) / max(1, (h - rank) * (columns - rank)))
    edge = noise * (math.sqrt(h) + math.sqrt(columns))
    explained = noise <= ROUNDED * unit or (rank < len(values) and float(values[rank]) <= max(WHITE * edge, unseen))
    directions = vectors[:, :rank] if not wide else torch.linalg.qr(change.T @ vectors[:, :rank])[0]
    least = max(noise, unit / 4)
    return Spectrum(values, directions.contiguous(), rank, gap, least, scale, taken, explained)
