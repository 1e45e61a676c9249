"""New candidates where they would explain most of what is left.

With P the projection off the features that are there and R what is left, one candidate x̃ of features f explains

    ||(P f)ᵀ R||² / ||P f||².

Starts at random among combinations of the candidates climb this on the sphere, many of them at once: most end in the
same few places.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from exhume.attacks.rewind.fit import Fit

STARTS = 96
CLIMBS = 40
FIRST_STRIDE, SHRINKING = 0.3, 0.93  # of the steps, on the unit sphere
ASIDE = 0.3  # how far starts are from the span of the candidates
APART = 0.98  # a cosine above which two places are one


def drawn(count: int, dimensions: int, bias: bool, random: torch.Generator) -> Float[Tensor, "count c"]:
    """Candidates at random on the sphere."""
    return _facing(normalize(torch.randn(count, dimensions, generator=random), dim=1), bias)


def proposed(fit: Fit, count: int, bias: bool, random: torch.Generator) -> Float[Tensor, "few c"]:
    """At most so many, the best first."""
    places, explained = _climbed(fit, _near(fit.candidates, bias, random))
    chosen: list[Tensor] = []
    for place in places[explained.argsort(descending=True)]:
        if all(float(place @ other) < APART for other in chosen):
            chosen.append(place)
        if len(chosen) == count:
            break
    return torch.stack(chosen)


def _near(candidates: Float[Tensor, "m c"], bias: bool, random: torch.Generator) -> Float[Tensor, "s c"]:
    m, c = candidates.shape
    among = normalize(torch.randn(STARTS, m, generator=random).to(candidates) @ candidates, dim=1)
    aside = normalize(torch.randn(STARTS, c, generator=random).to(candidates), dim=1)
    return _facing(normalize(among + ASIDE * aside, dim=1), bias)


def _facing(candidates: Float[Tensor, "m c"], bias: bool) -> Float[Tensor, "m c"]:
    """With a positive last coordinate, where it is the 1 of x̃ = (x, 1)."""
    return torch.where(candidates[:, -1:] < 0, -candidates, candidates) if bias else candidates


def _climbed(fit: Fit, places: Float[Tensor, "s c"]) -> tuple[Float[Tensor, "s c"], Float[Tensor, " s"]]:
    basis = torch.linalg.qr((fit.features * fit.weights).T).Q
    left = fit.residual * fit.weights[:, None]

    def off(rows: Float[Tensor, "s h"]) -> Float[Tensor, "s h"]:
        return rows - (rows @ basis) @ basis.T

    stride = FIRST_STRIDE
    for _ in range(CLIMBS):
        features = off(fit.way.features(places) * fit.weights)
        along, size = features @ left, features.square().sum(dim=1, keepdim=True).clamp_min(1e-30)
        explained = along.square().sum(dim=1, keepdim=True) / size
        slope = off(along @ left.T - explained * features) / size * fit.weights
        uphill = fit.way.pulled_back(places, slope)
        uphill = uphill - (uphill * places).sum(dim=1, keepdim=True) * places
        places = normalize(places + stride * normalize(uphill, dim=1), dim=1)
        stride *= SHRINKING
    features = off(fit.way.features(places) * fit.weights)
    explained = (features @ left).square().sum(dim=1) / features.square().sum(dim=1).clamp_min(1e-30)
    return places, explained
