"""Networks as tutorials have them, with torch's default initial weights."""

import itertools

import torch
from torch import Tensor, nn


def mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU, dropout: float = 0.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b), activation(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def lenet() -> nn.Sequential:
    """For images of 1 x 28 x 28 and ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def small_cnn() -> nn.Sequential:
    """For images of 3 x 32 x 32 and ten classes: two convolutions, and a head on 1,024 features."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.skip = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        within = self.first_norm(self.first(images)).relu()
        return (self.second_norm(self.second(within)) + self.skip(images)).relu()


def resnet() -> nn.Sequential:
    """A ResNet of eight layers with batch norm, for images of 3 x 32 x 32 and ten classes."""
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    blocks = [ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class VisionTransformer(nn.Module):
    """Patches of 4 x 4 of images of 3 x 32 x 32, a class token, two blocks of torch's own encoder."""

    def __init__(self, width: int = 64, patch: int = 4) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (32 // patch) ** 2 + 1, width) * 0.02)
        block = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.embed(images).flatten(start_dim=2).transpose(1, 2)
        row = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.places
        found: Tensor = self.head(self.blocks(row)[:, 0])
        return found
