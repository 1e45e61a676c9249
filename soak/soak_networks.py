"""Code of a user's own, which some scenes name with --model."""

from torch import nn


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 60), nn.ReLU(), nn.Linear(60, 3))


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(3072, 1000), nn.ReLU(), nn.Linear(1000, 10))
