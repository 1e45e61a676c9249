"""What a victim is trained on, and how pixels became rows (enough to go back)."""

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.data.image_scales import Norm, Standardise
from exhume.errors import ExhumeError, UsageError

DTYPES = {"float32": torch.float32, "float64": torch.float64}
CIFAR10_SPLIT_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_SPLIT_STD = (0.247, 0.243, 0.261)

# Far below what one step of one 8-bit pixel makes, far above rounding in double precision.
SMALLEST_STD = 1e-9
SMALLEST_RELATIVE_NORM = 1e-6


@dataclass(frozen=True, repr=False)
class Preparation:
    """How pixels became rows: x = scale · (pixels − mean) / std, flattened by channel, height, width."""

    mean: Float[Tensor, " channels"]
    std: Float[Tensor, " channels"]
    scale: Float[Tensor, " n"]
    image_shape: tuple[int, int, int] | None
    standardise: Standardise
    norm: Norm

    def to_pixels(self, rows: Float[Tensor, "m d"], scale: Float[Tensor, " m"]) -> Float[Tensor, "m c h w"]:
        """The pictures of rows, clipped to [0, 1]; `scale` belongs to these rows and undoes their norm."""
        if self.image_shape is None:
            raise ExhumeError("expected rows that came from images, found synthetic rows; they have no pixels to show")
        images = (rows / scale[:, None]).reshape(-1, *self.image_shape)
        mean, std = self.mean.to(images)[:, None, None], self.std.to(images)[:, None, None]
        return (images * std + mean).clamp(0, 1)

    def to(self, dtype: torch.dtype) -> "Preparation":
        return replace(self, mean=self.mean.to(dtype), std=self.std.to(dtype), scale=self.scale.to(dtype))

    def describe(self) -> str:
        if self.image_shape is None:
            return "rows drawn with norm sqrt(d)"
        return f"{self._describe_standardisation()}, {self._describe_norm()}"

    def _describe_standardisation(self) -> str:
        if self.standardise == "none":
            return "pixels kept in [0, 1]"
        if self.standardise == "subset":
            return f"standardised with the subset's mean {self.mean[0]:.2f} and std {self.std[0]:.2f}"
        whose = "the subset's" if self.standardise == "channels" else "the full CIFAR-10 training split's"
        mean = " ".join(f"{value:.2f}" for value in self.mean.tolist())
        std = " ".join(f"{value:.2f}" for value in self.std.tolist())
        return f"standardised per channel with {whose} mean {mean} and std {std}"

    def _describe_norm(self) -> str:
        return "rows brought to norm sqrt(d)" if self.norm == "sqrt-d" else "rows keep their norm"


@dataclass(frozen=True)
class Prepared:
    rows: Float[Tensor, "n d"] = field(repr=False)
    preparation: Preparation


@dataclass(frozen=True, repr=False)
class Dataset:
    """Training rows X, their targets Y, and where they come from.

    Labels are real targets: −1/+1 for two classes, the position of the class as a float for more, a noisy linear (or
    sign) rule for the sphere, and −1, +1, −1, ... where a class says nothing (none, or one alone).
    """

    inputs: Float[Tensor, "n d"] = field(repr=False)
    labels: Float[Tensor, " n"] = field(repr=False)
    class_names: tuple[str, ...]
    class_index: Int[Tensor, " n"]
    image_shape: tuple[int, int, int] | None
    preparation: Preparation
    description: str


def prepare(pixels: Float[Tensor, "n c h w"], standardise: Standardise, norm: Norm) -> Prepared:
    """Rows x_i = s_i (pixels_i − mean) / std, with s_i = sqrt(d) / ||·|| for the norm "sqrt-d" and 1 for "keep".

    "subset" takes one mean and one (unbiased) standard deviation over all pixels of all images, "channels" one of each
    a channel, "cifar10-split" the published ones of the full CIFAR-10 training split.
    """
    exact = pixels.to(torch.float64)
    mean, std = _statistics(exact, standardise)
    rows = ((exact - mean[:, None, None]) / std[:, None, None]).flatten(start_dim=1)
    scale = torch.ones(len(rows), dtype=torch.float64, device=rows.device)
    if norm == "sqrt-d":
        scale = _scale_to_sphere(rows)
    preparation = Preparation(mean, std, scale, (*pixels.shape[1:],), standardise, norm)
    return Prepared(rows=(rows * scale[:, None]).to(pixels.dtype), preparation=preparation.to(pixels.dtype))


def downsample(pixels: Float[Tensor, "n c h w"], side: int) -> Float[Tensor, "n c side side"]:
    """Images of side × side pixels, each the average of the block it replaces."""
    count, channels, height, width = pixels.shape
    if side < 1 or height % side or width % side:
        common = math.gcd(height, width)
        allowed = ", ".join(str(divisor) for divisor in range(1, common + 1) if common % divisor == 0)
        raise UsageError(f"expected a side that divides {height}x{width} images ({allowed}), found {side}")
    blocks = pixels.reshape(count, channels, side, height // side, side, width // side)
    return blocks.mean(dim=(3, 5))


def _statistics(pixels: Float[Tensor, "n c h w"], standardise: Standardise) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation of each channel."""
    channels = pixels.shape[1]
    if standardise == "none":
        return pixels.new_zeros(channels), pixels.new_ones(channels)
    if standardise == "cifar10-split":
        if channels != 3:
            raise UsageError(
                f"expected images of 3 channels for the standardisation 'cifar10-split', found {channels}; "
                "use 'subset' or 'channels'"
            )
        return pixels.new_tensor(CIFAR10_SPLIT_MEAN), pixels.new_tensor(CIFAR10_SPLIT_STD)
    values = pixels.transpose(0, 1).reshape(channels if standardise == "channels" else 1, -1)
    # One value has no unbiased deviation, and torch would answer NaN.
    std = values.std(dim=1) if values.shape[1] > 1 else values.new_zeros(len(values))
    if bool((std < SMALLEST_STD).any()):
        where = "every channel" if standardise == "channels" else "the images"
        raise ExhumeError(
            f"expected pixels that differ in {where} to standardise with, found one constant value "
            f"{values[int(std.argmin()), 0]:g}; choose other images or the standardisation 'none'"
        )
    return values.mean(dim=1).expand(channels).clone(), std.expand(channels).clone()


def _scale_to_sphere(rows: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    norms = rows.norm(dim=1)
    radius = math.sqrt(rows.shape[1])
    flat = (norms <= SMALLEST_RELATIVE_NORM * radius).nonzero().flatten().tolist()
    if flat:
        raise ExhumeError(
            f"expected rows that can be brought to norm sqrt(d), found image {flat[0]} constant, a zero row; "
            "leave it out or keep the norm"
        )
    return radius / norms
