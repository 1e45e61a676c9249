"""The residual network of the reconstruction experiments: no batch norm, no pooling, no bias.

    z_0 = C[x],   z_b = B(z_{b−1})  for b = 1..4,   f(x) = Θ vec(z_4),   B(u) = relu(u + C3[relu(C3[u])])

C is a convolution with a large kernel that leaves a few positions (32 × 32 pixels, kernel 28, padding 1: 7 × 7), C3 are
3 × 3 convolutions with padding 1. The head Θ sees all channels at all positions, so that its number of parameters is
p_L = outputs · channels · positions. Weights start at N(0, 1/d) in C and at N(0, 1/fan_in) in all later layers.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume import seeds
from exhume.errors import UsageError
from exhume_papers.networks.initialisation import draw_normal

POSITIONS = 7  # what the default kernel leaves of a side


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.outer = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return torch.relu(images + self.outer(torch.relu(self.inner(images))))


class ResNet(nn.Module):
    """Inputs are flat rows (n × d), d = colours · side², in the order channel, height, width."""

    def __init__(
        self,
        side: int,
        channels: int,
        outputs: int,
        stream: torch.Generator,
        kernel: int | None = None,
        padding: int = 1,
        blocks: int = 4,
        colours: int = 3,
    ) -> None:
        super().__init__()
        if min(side, channels, outputs, colours) < 1 or min(padding, blocks) < 0:
            raise UsageError(
                "expected a ResNet with positive side, channels, outputs and colours, "
                f"found {side}, {channels}, {outputs} and {colours}"
            )
        largest = side + 2 * padding
        if kernel is None:
            kernel = largest - POSITIONS + 1
        if not 1 <= kernel <= largest:
            raise UsageError(
                f"expected a first kernel of 1 to {largest} pixels for {side}x{side} images with padding {padding}, "
                f"found {kernel}; give another kernel"
            )
        self.image_shape = (colours, side, side)
        self.first = nn.Conv2d(colours, channels, kernel, padding=padding, bias=False)
        self.blocks = nn.Sequential(*(ResidualBlock(channels) for _ in range(blocks)))
        self.feature_shape = (channels, largest - kernel + 1, largest - kernel + 1)
        self.head = nn.Linear(math.prod(self.feature_shape), outputs, bias=False)
        self._draw(stream)

    def _draw(self, stream: torch.Generator) -> None:
        draw_normal(self.first.weight, 1 / math.sqrt(math.prod(self.image_shape)), stream)
        for block in self.blocks:
            for convolution in block.children():
                assert isinstance(convolution, nn.Conv2d)
                fan_in = convolution.in_channels * math.prod(convolution.kernel_size)
                draw_normal(convolution.weight, 1 / math.sqrt(fan_in), stream)
        draw_normal(self.head.weight, 1 / math.sqrt(self.head.in_features), stream)

    def forward(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        images = rows.reshape(len(rows), *self.image_shape)
        return self.head(self.blocks(self.first(images)).flatten(start_dim=1))


def blank_resnet(
    side: int,
    channels: int,
    outputs: int,
    kernel: int | None,
    padding: int,
    blocks: int,
    colours: int,
    seed: int = 0,
) -> ResNet:
    """A network whose weights are still to be loaded, or as it starts from a seed."""
    stream = seeds.generator(seed, "network")
    return ResNet(side, channels, outputs, stream, kernel, padding, blocks, colours)
