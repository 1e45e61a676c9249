import math

import pytest
import torch

from exhume.activations import ACTIVATIONS, activation
from exhume.attacks.prior.smoothing import smoothed
from exhume.errors import UsageError

NAMES = [name for name in ACTIVATIONS.names() if name != "linear"]
KINKED = ("relu+tanh", "leaky_relu", "elu", "relu6")
"""The quadrature is rough where a slope jumps, or its slope does. ReLU has a closed form."""


def naive(name: str, z: torch.Tensor, share: float, deviation: float, derivative: bool = False) -> torch.Tensor:
    """The mean over a fine grid of g."""
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = torch.exp(-grid.square() / 2)
    density /= density.sum()
    places = math.sqrt(1 - share) * z[:, None] + math.sqrt(share) * deviation * grid
    with torch.no_grad():
        values = activation(name).derivative(places) if derivative else activation(name).value(places)
    return (values * density).sum(dim=1) * (math.sqrt(1 - share) if derivative else 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("share", "deviation"), [(0.04, 1.0), (0.14, 1.0), (0.2, 0.5)])
def test_smoothing_is_the_mean_over_what_is_not_resolved(name: str, share: float, deviation: float) -> None:
    z = torch.linspace(-3, 3, 41, dtype=torch.float64)
    found = smoothed(activation(name), share, deviation)
    tolerance = 0.03 if name in KINKED else 1e-5
    torch.testing.assert_close(found.value(z), naive(name, z, share, deviation), atol=tolerance, rtol=0)
    if name not in KINKED:
        torch.testing.assert_close(found.derivative(z), naive(name, z, share, deviation, True), atol=2e-3, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_derivative_is_that_of_the_value(name: str) -> None:
    z = torch.linspace(-2.1, 1.9, 23, dtype=torch.float64, requires_grad=True)
    found = smoothed(activation(name), 0.1)
    (slope,) = torch.autograd.grad(found.value(z).sum(), z)
    torch.testing.assert_close(found.derivative(z.detach()), slope, atol=1e-10, rtol=1e-8)


def test_a_sample_that_is_resolved_completely_is_not_smoothed() -> None:
    relu = activation("relu")
    assert smoothed(relu, 0.0) is relu


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="share of unresolved energy"):
        smoothed(activation("relu"), share)
