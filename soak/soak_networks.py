"""Code of a user's own, which some scenes name with --model."""

from torch import nn


def small(width: int = 60) -> nn.Module:
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(3072, 1000), nn.ReLU(), nn.Linear(1000, 10))


def pictures() -> nn.Module:
    convolution = nn.Conv2d(1, 4, 3, padding=1)
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(144, 48), nn.ReLU(), nn.Linear(48, 3))


def table() -> nn.Module:
    return nn.Sequential(nn.Linear(60, 2048), nn.ReLU(), nn.Linear(2048, 2))


def digits() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 10))


def lenet() -> nn.Module:
    convolutions = (nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU())
    dense = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(*convolutions, nn.AvgPool2d(2), nn.Flatten(), *dense)
