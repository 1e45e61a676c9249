"""Whole images from patches that overlap.

Recovered patches come in no order. Where the stride is below the kernel, a patch and its right neighbour share all but
`stride` columns, and recovered patches are exact, so neighbours agree to rounding and others do not. From every patch
as the upper left one the grid is filled row by row with patches that agree with their left and upper neighbours (and
are zero in the padding). An image is assembled only if there is exactly one way to fill the grid: blank areas, where
several patches agree, leave it in pieces. Patches that do not overlap say nothing of each other.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.errors import UsageError
from exhume.readings import Patches

AGREE = 1e-3  # of the root mean square of all patches
MOST_TRIES = 20_000  # patches tried from one corner, before the filling counts as not unique


@dataclass(frozen=True, eq=False, repr=False)
class Assembled:
    """`members` are the patches of each image, row after row; `left` are those that belong to none.

    `unseen` is the number of values of an image that no patch covers; they are zero here."""

    images: Float[Tensor, "k d"]
    members: Int[Tensor, "k v"]
    left: tuple[int, ...]
    unseen: int


def overlaps(geometry: Patches) -> bool:
    """Whether every patch shares values with its neighbours on all sides."""
    sides = zip(geometry.grid, geometry.stride, geometry.kernel, strict=True)
    return geometry.dilation == (1, 1) and all(places == 1 or stride < kernel for places, stride, kernel in sides)


def assemble(patches: Float[Tensor, "m c"], geometry: Patches) -> Assembled:
    if not overlaps(geometry):
        raise UsageError(
            f"expected patches that overlap (a stride below the kernel), found kernel {list(geometry.kernel)} and "
            f"stride {list(geometry.stride)}: nothing tells which patches belong together"
        )
    blocks = patches.double().reshape(-1, *geometry.picture_shape)
    close = AGREE * float(blocks.square().mean().sqrt()) if len(blocks) else 0.0
    (down, right), fits = _neighbours(blocks, geometry, close), _fits(blocks, geometry, close)
    fillings = [_only_filling(start, down, right, fits, geometry.grid) for start in range(len(blocks))]
    found = [filling for filling in fillings if filling is not None]
    members = torch.tensor(found, dtype=torch.int64).reshape(-1, geometry.pieces)
    images, unseen = _put_together(blocks, members, geometry)
    used = set(members.flatten().tolist())
    return Assembled(images, members, tuple(index for index in range(len(blocks)) if index not in used), unseen)


def _neighbours(
    blocks: Float[Tensor, "m b y x"], geometry: Patches, close: float
) -> tuple[Bool[Tensor, "m m"], Bool[Tensor, "m m"]]:
    """[i, j]: whether patch j may be right below patch i, and right of it."""
    found = []
    for axis, stride, kernel in zip((2, 3), geometry.stride, geometry.kernel, strict=True):
        shared = max(kernel - stride, 0)
        mine, theirs = blocks.narrow(axis, kernel - shared, shared), blocks.narrow(axis, 0, shared)
        apart = torch.cdist(mine.flatten(1), theirs.flatten(1), compute_mode="donot_use_mm_for_euclid_dist")
        found.append((apart <= close * mine[:1].numel() ** 0.5).fill_diagonal_(False))
    return found[0], found[1]


def _fits(blocks: Float[Tensor, "m b y x"], geometry: Patches, close: float) -> Bool[Tensor, "m v"]:
    """Whether a patch is zero where its place lies in the padding."""
    inside = geometry(torch.ones(1, _numbers(geometry), dtype=blocks.dtype))[0] > 0
    return (blocks.flatten(1).abs()[:, None] * ~inside).amax(dim=2) <= 30 * close


def _only_filling(
    start: int, down: Bool[Tensor, "m m"], right: Bool[Tensor, "m m"], fits: Bool[Tensor, "m v"], grid: tuple[int, int]
) -> list[int] | None:
    """The patches of the grid with this one in the upper left, if there is exactly one way."""
    rows, columns = grid
    found: list[list[int]] = []
    open_ones = [[start]] if bool(fits[start, 0]) else []
    for _ in range(MOST_TRIES):
        if not open_ones or len(found) > 1:
            break
        placed = open_ones.pop()
        place = len(placed)
        if place == rows * columns:
            found.append(placed)
            continue
        allowed = fits[:, place].clone()
        allowed[placed] = False
        if place % columns:
            allowed &= right[placed[-1]]
        if place >= columns:
            allowed &= down[placed[place - columns]]
        open_ones += [[*placed, index] for index in allowed.nonzero()[:, 0].tolist()]
    return found[0] if len(found) == 1 and not open_ones else None


def _put_together(
    blocks: Float[Tensor, "m b y x"], members: Int[Tensor, "k v"], geometry: Patches
) -> tuple[Float[Tensor, "k d"], int]:
    """Means over the patches that cover a value."""
    sizes = {"kernel_size": geometry.kernel, "padding": geometry.padding, "stride": geometry.stride}
    height_width = geometry.image_shape[1:]
    columns = blocks.flatten(1)[members].transpose(1, 2)
    total = torch.nn.functional.fold(columns, height_width, **sizes)
    count = torch.nn.functional.fold(torch.ones_like(columns[:1]), height_width, **sizes) if len(columns) else total
    images = (total / count.clamp_min(1)).reshape(len(members), _numbers(geometry))
    return images, int((count == 0).sum())


def _numbers(geometry: Patches) -> int:
    channels, height, width = geometry.image_shape
    return channels * height * width
