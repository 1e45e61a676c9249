"""Is what candidates leave of the weights noise? Noise cannot be predicted from other weights.

What is left at each row is predicted from all other rows, by a regression on the features of random points with a
ridge (the best of several): the share 1 − ||r − r̂||² / ||r||² that this explains, each row left out of its own
prediction. It is 0, but for chance, for rounding, for noise, for features that are slightly off; missing samples and
wrong signs leave a function of the rows.
"""

import torch

from exhume.attacks.single_layer.span import Fit, SpanLoss

ROWS = 600  # are enough to tell, and their matrix is solved within a second
POINTS = 2  # for each row
RIDGES = tuple(10.0**power for power in range(-6, 1))


def predictable_share(loss: SpanLoss, fit: Fit) -> float:
    """The share of the residual that other rows predict."""
    p, d = min(ROWS, loss.features.p), loss.features.d
    features = loss.features.part(0, p)
    norm = fit.candidates.double().norm(dim=1).median()
    stream = torch.Generator().manual_seed(0)
    points = torch.randn(POINTS * p, d, generator=stream, dtype=torch.float64).to(fit.candidates.device)
    values = features(norm * points / points.norm(dim=1, keepdim=True))
    likeness = values.T @ values
    levels, vectors = torch.linalg.eigh(
        likeness / likeness.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    )
    left = fit.residual[:, :p].double()
    total = left.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    shares = []
    for ridge in RIDGES:
        inverse = (vectors / (levels.clamp_min(0) + ridge)) @ vectors.T
        missed = (left @ inverse) / inverse.diagonal()
        shares.append(1 - float(missed.square().sum() / total))
    return max(0.0, *shares)
