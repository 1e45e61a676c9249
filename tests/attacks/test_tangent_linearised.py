"""What gradients tell of the inputs that they were read at, against naive twins."""

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.foundation.unknowns import unknown_directions
from exhume.attacks.tangent import linearised
from exhume.attacks.tangent.linearised import _System, expected_squares
from exhume.attacks.tangent.span import TangentFit, TangentSpanLoss
from exhume.features.layered import LayeredNetwork

D, M, H, STEP = 6, 3, 40, 1e-5


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem(name: str, k: int, faint: float = 1.0, noise: float = 1e-3) -> tuple[TangentSpanLoss, Tensor]:
    """All of the first layer's rows but every fifth, and the head."""
    first = normal(H, D, seed=1) / D**0.5
    first[:, -1] *= faint
    network = LayeredNetwork.measured((first, normal(k, H, seed=2) / H**0.5), activation(name), D**0.5)
    candidates = to_norm(normal(M, D, seed=3), D**0.5)
    gradients, coefficients = network.gradients(candidates), normal(M, k, seed=4)
    targets = [
        torch.einsum("mq,mqh,mc->hc", coefficients, backward, forward)
        for forward, backward in zip(gradients.forward, gradients.backward, strict=True)
    ]
    targets = [target + noise * normal(*target.shape, seed=5 + layer) for layer, target in enumerate(targets)]
    units = torch.arange(H)[torch.arange(H) % 5 > 0]
    return TangentSpanLoss(network, targets, units), candidates


def explained(loss: TangentSpanLoss, fit: TangentFit, candidates: Tensor) -> Tensor:
    """Σ_i A_i·G(x_i) on what is looked at, as one vector."""
    found = loss.network.gradients(candidates)
    parts = [
        torch.einsum("mq,mqh,mc->hc", fit.coefficients, backward, forward)
        for forward, backward in zip(found.forward, found.backward, strict=True)
    ]
    return torch.cat([parts[0][loss.units].flatten(), parts[1].flatten()])


@pytest.mark.parametrize(("name", "k"), [("tanh", 1), ("gelu", 2), ("relu", 2)])
def test_the_curvature_is_that_of_finite_differences(name: str, k: int) -> None:
    loss, candidates = problem(name, k)
    fit = loss.fit(candidates)
    columns, made_up = [], []
    bases = unknown_directions(candidates, False)
    for i in range(M):
        for way in bases[i].T:
            ahead, behind = candidates.clone(), candidates.clone()
            ahead[i] += STEP * way
            behind[i] -= STEP * way
            columns.append((explained(loss, fit, ahead) - explained(loss, fit, behind)) / (2 * STEP))
    for i in range(M):
        for q in range(k):
            one = torch.zeros_like(fit.coefficients)
            one[i, q] = 1
            made_up.append(explained(loss, TangentFit(**{**vars(fit), "coefficients": one}), candidates))
    basis = torch.linalg.qr(torch.stack(made_up).T).Q
    jacobian = torch.stack(columns).T
    jacobian = jacobian - basis @ (basis.T @ jacobian)
    inverse = torch.linalg.inv(jacobian.T @ jacobian)
    variances, steps = _System(loss, fit).dense()
    torch.testing.assert_close(variances, inverse.diagonal().reshape(M, D - 1).sum(dim=1), rtol=1e-4, atol=0)
    rows, head = loss.targets
    assert rows is not None
    assert head is not None
    target = torch.cat([rows[loss.units].flatten(), head.flatten()])
    step = inverse @ (jacobian.T @ (target - explained(loss, fit, candidates)))
    torch.testing.assert_close(steps, step.reshape(M, D - 1).square().sum(dim=1), rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_products_say_of_it_what_its_factors_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, candidates = problem(name, 2)
    system = _System(loss, loss.fit(candidates))
    monkeypatch.setattr(linearised, "PROBES", 100)
    (exact, step), (found, same) = system.dense(), system.probed()
    torch.testing.assert_close(same, step, rtol=0.05, atol=0)
    assert 0.7 < float((found / exact).min()) <= float((found / exact).max()) < 1.4


def test_two_candidates_that_pass_the_same_error_signals_back_are_not_determined() -> None:
    """Where every unit fires for both, the change of the first layer is that of their sum alone."""
    first = 0.1 * normal(H, D, seed=1)
    first[:, 0] = 3.0
    network = LayeredNetwork.measured((first, normal(1, H, seed=2)), activation("relu"), D**0.5)
    candidates = to_norm(normal(2, D, seed=3) + torch.tensor([4.0, *[0.0] * (D - 1)]).double(), D**0.5)
    gradients = network.gradients(candidates)
    target = torch.einsum("mqh,mc->hc", gradients.backward[0], gradients.forward[0])
    loss = TangentSpanLoss(network, (target, None))
    assert float(expected_squares(loss, loss.fit(candidates), 1e-10).min()) > 1
