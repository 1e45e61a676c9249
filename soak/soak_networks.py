"""Code of a user's own, which some scenes name with --model."""

from torch import nn


def small(width: int = 60) -> nn.Module:
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(3072, 1000), nn.ReLU(), nn.Linear(1000, 10))


def pictures() -> nn.Module:
    convolution = nn.Conv2d(1, 4, 3, padding=1)
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(144, 48), nn.ReLU(), nn.Linear(48, 3))
