"""The posterior variance of coordinates, against a naive twin by finite differences."""

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.foundation.unknowns import unknown_directions
from exhume.attacks.prior import posterior
from exhume.attacks.prior.loss import PriorLoss
from exhume.attacks.prior.posterior import spread
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows

M, R, P, NOISE, STEP = 2, 8, 120, 1e-2, 1e-5
VARIANCE = torch.logspace(0, -2, R, dtype=torch.float64)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem(blind: bool = False) -> tuple[PriorLoss, Tensor]:
    rows = normal(P, R, seed=1) / R**0.5
    if blind:
        rows[:, 2] = 0
    features = RidgeFeatures(HeldRows(rows), activation("tanh"))
    places = normal(M, R, seed=2) * VARIANCE.sqrt()
    if blind:
        places[:, 2] = 0  # or the norm would show it
    candidates = to_norm(places, R**0.5)
    weights = torch.tensor([[1.0, -0.7]], dtype=torch.float64) @ features(candidates)
    return PriorLoss(features, weights + 0.05 * normal(1, P, seed=3), torch.zeros(R, dtype=torch.float64)), candidates


@pytest.mark.parametrize("dense", [True, False])
def test_it_is_that_of_the_dense_system(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, candidates = problem()
    fit = loss.fit(candidates)
    bases, columns = unknown_directions(candidates, False), []
    for i in range(M):
        for way in bases[i].T:
            ahead, behind = candidates.clone(), candidates.clone()
            ahead[i] += STEP * way
            behind[i] -= STEP * way
            slope = (loss.features(ahead) - loss.features(behind)) / (2 * STEP)
            columns.append((fit.coefficients.T @ slope)[0])
    spanned = torch.linalg.qr(fit.features.T).Q
    jacobian = torch.stack(columns).T
    jacobian = jacobian - spanned @ (spanned.T @ jacobian)
    prior = torch.block_diag(*(basis.T @ torch.diag(1 / VARIANCE) @ basis for basis in bases))
    covariance = torch.linalg.inv(jacobian.T @ jacobian / NOISE + prior)
    whole = torch.block_diag(*bases)
    expected = (whole @ covariance @ whole.T).diagonal().reshape(M, R)
    if not dense:
        monkeypatch.setattr(posterior, "DENSE", 0)
        monkeypatch.setattr(posterior, "PROBES", 800)
    found = spread(loss, loss.linearise(fit), NOISE, VARIANCE)
    torch.testing.assert_close(found, expected, rtol=1e-4 if dense else 0.35, atol=0)


@pytest.mark.parametrize("dense", [True, False])
def test_what_no_row_sees_keeps_its_prior_variance(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, candidates = problem(blind=True)
    if not dense:
        monkeypatch.setattr(posterior, "DENSE", 0)
        monkeypatch.setattr(posterior, "PROBES", 200)
    found = spread(loss, loss.linearise(loss.fit(candidates)), NOISE, VARIANCE)
    assert float((found[:, 2] / VARIANCE[2]).min()) > 0.5
    assert float((found[:, 0] / VARIANCE[0]).max()) < 0.5
