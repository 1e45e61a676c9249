"""Smooth pictures of one brightness that explain the dense layers, from many starts, and what the starts agree on.

Pictures are X = μ + S z with a brightness μ that all share and amplitudes S that fall as 1 / f². L-BFGS minimises

    r(X) + PRIOR ||z||²

in z and μ. There are fewer equations than a picture has pixels, so that each start ends at pictures of its own, with
much of the samples in all of them and errors that differ: their mean is closer than most of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.dense_spans.spans import DenseSpans

PRIOR = 3e-5  # a third of it and three times as much were worse on two LeNets, under the logarithm of this loss
POWER = 2.0
SPREAD = 0.3  # of the coordinates at a start
BRIGHTNESS = 3.0  # how fast the common brightness moves, next to the other coordinates
ALIKE = 0.7  # the correlation from which on two starts are taken to show one picture
ROUNDS = 3  # in which the mean settles


@dataclass(frozen=True, eq=False, repr=False)
class SmoothPictures:
    shape: tuple[int, int, int]
    amplitude: Float[Tensor, "height width"]

    @classmethod
    def of(cls, shape: tuple[int, int, int], like: Tensor) -> "SmoothPictures":
        down, across = (torch.fft.fftfreq(side, dtype=torch.float64) * side for side in shape[1:])
        amplitude = (down[:, None].square() + across.square()).sqrt().clamp_min(1.0) ** -POWER
        return cls(shape, (amplitude / amplitude.square().mean().sqrt()).to(like))

    def at(self, z: Float[Tensor, "m d"], brightness: Tensor) -> Float[Tensor, "m d"]:
        images = z.reshape(len(z), *self.shape)
        smooth = torch.fft.ifft2(torch.fft.fft2(images) * self.amplitude).real
        return BRIGHTNESS * brightness + smooth.reshape(z.shape)


@dataclass(frozen=True, eq=False, repr=False)
class DescentStart:
    """Where a start ended. `loss`: what its pictures leave, with the price of their roughness."""

    pictures: Float[Tensor, "m d"]
    loss: float
    brightness: float


def one_start(
    spans: DenseSpans,
    pictures: SmoothPictures,
    count: int,
    iterations: int,
    brightness: float,
    generator: torch.Generator,
) -> "DescentStart":
    """`brightness` is what to begin with: that of the best start before, because it moves slowly."""
    d = int(np.prod(pictures.shape))
    drawn = SPREAD * torch.randn(count * d, generator=generator, dtype=torch.float64)
    like = pictures.amplitude

    def made(numbers: Tensor) -> tuple[Tensor, Tensor]:
        z = numbers[:-1].reshape(count, d)
        return z, pictures.at(z, numbers[-1])

    def value(numbers: Tensor) -> Tensor:
        z, images = made(numbers)
        return spans.left(images) + PRIOR * z.square().sum()

    found, least = _minimised(value, torch.cat([drawn, drawn.new_full((1,), brightness)]), iterations, like)
    return DescentStart(made(found.to(like))[1], least, float(found[-1]))


def _minimised(value: Callable[[Tensor], Tensor], start: Tensor, iterations: int, like: Tensor) -> tuple[Tensor, float]:
    from scipy.optimize import minimize  # here: slow to import

    def both(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(numbers).to(like).requires_grad_()
        with torch.enable_grad():
            reached = value(point)
            (slope,) = torch.autograd.grad(reached, point)
        return float(reached.detach()), slope.double().cpu().numpy()

    ended = minimize(both, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": iterations, "maxcor": 20})
    return torch.from_numpy(ended.x), float(ended.fun)


def agreed(
    runs: Float[Tensor, "s m d"], losses: Float[Tensor, " s"]
) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"]]:
    """The mean over starts of each picture of the best one, and how many starts show it."""
    from scipy.optimize import linear_sum_assignment

    mean = runs[int(losses.argmin())]
    count = mean.new_zeros(len(mean))
    for _ in range(ROUNDS):
        total, count = torch.zeros_like(mean), mean.new_zeros(len(mean))
        for run in runs:
            alike = _correlations(mean, run)
            places = linear_sum_assignment(-alike.cpu().numpy())
            for mine, other in zip(*(place.tolist() for place in places), strict=True):
                if alike[mine, other] > ALIKE:
                    total[mine] += run[other]
                    count[mine] += 1
        mean = torch.where(count[:, None] > 0, total / count.clamp_min(1)[:, None], mean)
    return mean, count


def _correlations(first: Float[Tensor, "m d"], second: Float[Tensor, "m d"]) -> Float[Tensor, "m m"]:
    centred = [rows - rows.mean(dim=1, keepdim=True) for rows in (first, second)]
    lengths = [rows.norm(dim=1, keepdim=True).clamp_min(1e-12) for rows in centred]
    return (centred[0] / lengths[0]) @ (centred[1] / lengths[1]).T
