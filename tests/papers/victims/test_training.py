import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exhume.errors import ExhumeError, UsageError
from exhume_papers.victims.training import fit_logistic, fit_min_norm, fit_ridge


def drawn(n: int, p: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features Φ (n × p) and labels."""
    stream = torch.Generator().manual_seed(seed)
    features = torch.randn(n, p, generator=stream, dtype=torch.float64) + 0.5
    return features, torch.randn(n, generator=stream, dtype=torch.float64)


def theta(features: Tensor, coefficients: Tensor) -> np.ndarray:
    return (features.T @ coefficients).numpy()


@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 5))
def test_min_norm_is_the_pseudo_inverse_also_with_fewer_features_than_samples(n: int, p: int, seed: int) -> None:
    features, labels = drawn(n, p, seed)
    fitted = fit_min_norm(features @ features.T, labels)
    naive = np.linalg.pinv(features.numpy()) @ labels.numpy()
    condition = np.linalg.cond(features.numpy()) ** 2
    scale = np.linalg.norm(naive)
    np.testing.assert_allclose(theta(features, fitted.coefficients), naive, rtol=0, atol=1e-13 * condition * scale)
    error = float(np.mean((features.numpy() @ naive - labels.numpy()) ** 2))
    assert fitted.training_loss == pytest.approx(error, rel=1e-6, abs=1e-20 * condition**2)
    assert fitted.steps == 0


def test_min_norm_of_samples_that_occur_twice_is_the_pseudo_inverse() -> None:
    features, labels = drawn(6, 50)
    features[3] = features[1]
    fitted = fit_min_norm(features @ features.T, labels)
    np.testing.assert_allclose(
        theta(features, fitted.coefficients), np.linalg.pinv(features.numpy()) @ labels.numpy(), atol=1e-10
    )


def test_min_norm_keeps_the_small_eigenvalues_that_carry_the_labels() -> None:
    features, labels = drawn(60, 200)
    features = 1e-3 * features + 1.0
    assert np.linalg.cond((features @ features.T).numpy()) > 1e7
    assert fit_min_norm(features @ features.T, labels).training_loss < 1e-10


def test_min_norm_of_features_that_are_all_zero_learns_nothing() -> None:
    labels = torch.tensor([1.0, -2.0])
    fitted = fit_min_norm(torch.zeros(2, 2, dtype=torch.float64), labels)
    assert fitted.coefficients.tolist() == [0.0, 0.0]
    assert fitted.training_loss == 2.5


@given(st.integers(1, 10), st.integers(1, 30), st.floats(1e-3, 1e3))
def test_ridge_is_the_formula_in_the_parameters(n: int, p: int, penalty: float) -> None:
    features, labels = drawn(n, p)
    dense = features.numpy()
    naive = np.linalg.solve(dense.T @ dense + n * penalty * np.eye(p), dense.T @ labels.numpy())
    fitted = fit_ridge(features @ features.T, labels, penalty)
    np.testing.assert_allclose(theta(features, fitted.coefficients), naive, rtol=1e-7, atol=1e-9)


def test_ridge_has_no_gradient_left() -> None:
    features, labels = drawn(5, 30)
    penalty = 0.3
    parameters = features.T @ fit_ridge(features @ features.T, labels, penalty).coefficients
    parameters.requires_grad_()
    loss = (features @ parameters - labels).square().mean() + penalty * parameters.square().sum()
    (gradient,) = torch.autograd.grad(loss, parameters)
    assert gradient.abs().max() < 1e-12


def test_ridge_tends_to_min_norm() -> None:
    features, labels = drawn(5, 30)
    limit = fit_min_norm(features @ features.T, labels).coefficients
    distances = [
        float((fit_ridge(features @ features.T, labels, penalty).coefficients - limit).norm() / limit.norm())
        for penalty in (1.0, 1e-3, 1e-6, 1e-9)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-8


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan"), float("inf")])
def test_a_penalty_that_is_not_positive_is_refused(penalty: float) -> None:
    with pytest.raises(UsageError, match="positive ridge penalty"):
        fit_ridge(torch.eye(2, dtype=torch.float64), torch.ones(2), penalty)


def signed(n: int, p: int) -> tuple[Tensor, Tensor]:
    features, labels = drawn(n, p)
    return features, labels.sign()


def primal_descent(features: Tensor, labels: Tensor, steps: int, step_size: float) -> tuple[Tensor, float]:
    """Gradient descent on all p parameters, with torch's own gradient."""
    parameters = torch.zeros(features.shape[1], dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        loss = torch.nn.functional.softplus(-labels * (features @ parameters)).sum()
        (gradient,) = torch.autograd.grad(loss, parameters)
        parameters = (parameters - step_size * gradient).detach().requires_grad_()
    parameters = parameters.detach()
    return parameters, float(torch.nn.functional.softplus(-labels * (features @ parameters)).mean())


@pytest.mark.parametrize(("n", "p"), [(7, 40), (12, 5)])
@pytest.mark.parametrize("relative_step", [None, 0.3])
def test_dual_descent_is_gradient_descent_on_the_parameters(n: int, p: int, relative_step: float | None) -> None:
    features, labels = signed(n, p)
    largest = float(np.linalg.norm(features.numpy(), 2)) ** 2
    step_size = 4 / largest if relative_step is None else relative_step / largest
    expected, loss = primal_descent(features, labels, 300, step_size)
    fitted = fit_logistic(features @ features.T, labels, 300, None if relative_step is None else step_size)
    torch.testing.assert_close(features.T @ fitted.coefficients, expected, atol=1e-10, rtol=0)
    assert fitted.training_loss == pytest.approx(loss, abs=1e-10)
    assert fitted.steps == 300


def test_the_logistic_loss_falls_with_every_step_of_the_default_size() -> None:
    features, labels = signed(10, 8)
    losses = [fit_logistic(features @ features.T, labels, steps).training_loss for steps in range(1, 60)]
    assert losses[0] < np.log(2)
    assert losses == sorted(losses, reverse=True)


def test_a_separable_set_is_classified_right() -> None:
    features, labels = signed(10, 50)
    fitted = fit_logistic(features @ features.T, labels, 2000)
    assert torch.equal((features @ (features.T @ fitted.coefficients)).sign(), labels)
    assert fitted.training_loss < 0.1


@pytest.mark.parametrize("steps", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_million_steps_of_twenty_samples_take_seconds(steps: int) -> None:
    features, labels = signed(20, 200)
    began = time.process_time()
    fit_logistic(features @ features.T, labels, steps)
    assert time.process_time() - began < 60 * steps / 1_000_000


@pytest.mark.parametrize("labels", [[1.0, 0.0], [1.0, 2.0], [0.5, -1.0], [float("nan"), 1.0]])
def test_labels_that_are_no_signs_are_refused(labels: list[float]) -> None:
    with pytest.raises(UsageError, match=r"labels -1 and \+1"):
        fit_logistic(torch.eye(2, dtype=torch.float64), torch.tensor(labels), 3)


@pytest.mark.parametrize("step_size", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_that_is_not_positive_is_refused(step_size: float) -> None:
    with pytest.raises(UsageError, match="positive step"):
        fit_logistic(torch.eye(2, dtype=torch.float64), torch.tensor([1.0, -1.0]), 3, step_size)


def test_no_steps_and_features_that_are_all_zero_are_refused() -> None:
    labels = torch.tensor([1.0, -1.0])
    with pytest.raises(UsageError, match="at least 1 step"):
        fit_logistic(torch.eye(2, dtype=torch.float64), labels, 0)
    with pytest.raises(ExhumeError, match="all of them zero"):
        fit_logistic(torch.zeros(2, 2, dtype=torch.float64), labels, 3)
