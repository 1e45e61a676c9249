"""The linearised equations against naive twins: finite differences, dense inverses, fits without one equation."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.homogeneous import Homogeneous
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer import linearised
from exhume.attacks.single_layer.lifts import lifted_moves, mean_gains
from exhume.attacks.single_layer.linearised import Linearised, unknown_directions
from exhume.attacks.single_layer.moves import Moved
from exhume.attacks.single_layer.probing import Probed
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows

M, D, P, STEP = 3, 5, 90, 1e-6


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem(name: str, k: int, bias: bool, p: int = P, d: int = D, free: bool = False) -> tuple[SpanLoss, Tensor]:
    offsets = normal(p, seed=2) if bias else None
    features = RidgeFeatures(HeldRows(normal(p, d, seed=1)), activation(name), offsets)
    candidates = to_norm(normal(M, d, seed=3), d**0.5)
    weights = normal(k, M, seed=4) @ features(candidates) + 0.01 * normal(k, p, seed=5)
    return SpanLoss(features, weights, torch.float64, free_norms=free), candidates


def dense(loss: SpanLoss, candidates: Tensor, bases: Tensor) -> tuple[Tensor, Tensor]:
    """All columns of the linearised equations, the coefficients' first, by finite differences; and the weights."""
    fit = loss.fit(candidates)
    k = len(loss.weights)
    columns = [torch.kron(torch.eye(k, dtype=torch.float64), row[:, None]).T for row in fit.features]
    moves = []
    for index, basis in enumerate(bases):
        for way in basis.T:
            ahead, behind = candidates.clone(), candidates.clone()
            ahead[index] += STEP * way
            behind[index] -= STEP * way
            slope = (loss.features(ahead) - loss.features(behind)) / (2 * STEP)
            moves.append((fit.coefficients.T @ slope).flatten())
    return torch.cat([torch.cat(columns), torch.stack(moves)]).T, loss.weights.flatten()


CASES = [("tanh", 1, False), ("gelu", 2, True), ("relu", 1, True), ("softplus", 3, False)]


@pytest.mark.parametrize("free_norm", [False, True])
@pytest.mark.parametrize(("name", "k", "bias"), CASES)
def test_variances_and_step_are_those_of_the_dense_system(name: str, k: int, bias: bool, free_norm: bool) -> None:
    loss, candidates = problem(name, k, bias, free=free_norm)
    at = Linearised.at(loss, loss.fit(candidates))
    matrix, weights = dense(loss, candidates, at.bases)
    u = at.bases.shape[2]
    covariance = torch.linalg.inv(matrix.T @ matrix)[M * k :, M * k :].diagonal().reshape(M, u)
    torch.testing.assert_close(at.variances(), covariance.sum(dim=1), rtol=1e-4, atol=0)
    solution = torch.linalg.lstsq(matrix, weights[:, None]).solution[M * k :, 0].reshape(M, u)
    torch.testing.assert_close(at.step, torch.einsum("idu,iu->id", at.bases, solution), rtol=1e-4, atol=1e-7)


def test_left_out_is_what_a_fit_without_an_equation_misses_of_it() -> None:
    """At the least squares of the linearised equations, where no step is left."""
    loss, candidates = problem("tanh", 1, False)
    bases = unknown_directions(candidates, False)
    matrix, weights = dense(loss, candidates, bases)
    explained = loss.features(candidates).T
    weights = (
        weights
        - (moved := matrix[:, M:] - explained @ torch.linalg.lstsq(explained, matrix[:, M:]).solution)
        @ (torch.linalg.lstsq(moved, weights[:, None]).solution[:, 0])
    )
    still = SpanLoss(loss.features, weights[None], torch.float64)
    at = Linearised.at(still, still.fit(candidates))
    assert float(at.step.norm()) < 1e-5
    matrix, weights = dense(still, candidates, bases)
    missed = []
    for row in range(P):
        others = torch.arange(P) != row
        solution = torch.linalg.lstsq(matrix[others], weights[others, None]).solution[:, 0]
        missed.append(float(weights[row] - matrix[row] @ solution) ** 2)
    assert at.left_out == pytest.approx(sum(missed) / P, rel=1e-3)


def test_outputs_that_repeat_each_other_are_one_equation() -> None:
    loss, candidates = problem("gelu", 1, False)
    both = SpanLoss(loss.features, torch.cat([loss.published, -loss.published]), torch.float64)
    one, two = (Linearised.at(some, some.fit(candidates)) for some in (loss, both))
    assert two.amplitudes.shape == (M, 1)
    expected, found = (at.left_out * at.variances() for at in (one, two))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("free_norm", [False, True])
def test_the_unknown_directions_are_orthonormal_and_leave_out_the_norm(free_norm: bool) -> None:
    candidates = torch.cat([normal(3, D, seed=1), torch.eye(D, dtype=torch.float64)[:1]])
    bases = unknown_directions(candidates, free_norm)
    u = D if free_norm else D - 1
    torch.testing.assert_close(bases.transpose(1, 2) @ bases, torch.eye(u, dtype=torch.float64).expand(4, u, u))
    if not free_norm:
        assert float(torch.einsum("idu,id->iu", bases, candidates).abs().max()) < 1e-12


def test_a_direction_that_no_row_sees_and_a_candidate_without_a_trace_have_errors_beyond_all_bounds() -> None:
    loss, candidates = problem("tanh", 1, False)
    rows = loss.features.rows.block(0, P).clone()
    rows[:, 0] = 0
    blind = RidgeFeatures(HeldRows(rows), loss.features.activation)
    weights = normal(1, M, seed=4) @ blind(candidates)
    unseen = SpanLoss(blind, weights, torch.float64, free_norms=True)
    assert float(Linearised.at(unseen, unseen.fit(candidates)).variances().min()) > 1e10
    weak = SpanLoss(loss.features, loss.features(candidates[:1]), torch.float64)
    variances = Linearised.at(weak, weak.fit(candidates)).variances()
    assert float(variances[0]) < 1 < 1e6 < float(variances[1:].min())


@pytest.mark.parametrize("free_norm", [False, True])
@pytest.mark.parametrize(("name", "k", "uneven"), [("relu", 1, 1.0), ("tanh", 2, 1.0), ("tanh", 1, 0.05)])
def test_probes_give_the_variances_of_the_dense_factors(name: str, k: int, uneven: float, free_norm: bool) -> None:
    if name == "relu" and free_norm:
        pytest.skip("its norm is no unknown")
    d = 30
    p = 4 * M * (d + k) // k
    rows = normal(p, d, seed=1) / d**0.5
    rows[:, : d // 2] *= uneven
    features = RidgeFeatures(HeldRows(rows), activation(name))
    candidates = to_norm(normal(M, d, seed=3), d**0.5)
    weights = normal(k, M, seed=4) @ features(candidates) + 0.01 * normal(k, p, seed=5)
    loss = SpanLoss(features, weights, torch.float64, free_norms=free_norm)
    fit = loss.fit(candidates)
    expected, found = Linearised.at(loss, fit), Probed.at(loss, fit, probes=40)
    assert float((found.variances / expected.variances()).log().abs().max()) < 0.35
    assert float((found.step - expected.step).norm() / expected.step.norm()) < 0.6


def test_what_products_cannot_settle_is_not_known() -> None:
    """Two candidates that are nearly one: H is nearly singular."""
    d = 30
    features = RidgeFeatures(HeldRows(normal(600, d, seed=1) / d**0.5), activation("tanh"))
    candidates = to_norm(normal(1, d, seed=3).repeat(2, 1) + 1e-4 * normal(2, d, seed=6), d**0.5)
    loss = SpanLoss(features, features(candidates[:1]) + 0.1 * normal(1, 600, seed=7), torch.float64)
    found = Probed.at(loss, loss.fit(candidates))
    assert float(found.variances.min()) > 1e3


def test_more_rows_than_enough_make_the_errors_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, candidates = problem("tanh", 1, False, p=400)
    all_rows = Linearised.at(loss, loss.fit(candidates)).variances()
    monkeypatch.setattr(linearised, "FEW_ROWS", 100)
    monkeypatch.setattr(linearised, "ROWS_EACH", 1)
    assert bool((Linearised.at(loss, loss.fit(candidates)).variances() > all_rows).all())


def test_errors_are_those_of_the_samples_that_candidates_stand_for() -> None:
    """In homogeneous coordinates: the naive twin draws noise for the candidates and lifts it."""
    d = D - 1
    loss, candidates = problem("relu", 1, False)
    lift = Homogeneous(d).lift
    at = Linearised.at(loss, loss.fit(candidates))
    noise = 1e-6 * torch.einsum("idu,iun,ns->sid", at.bases, at.inverse.reshape(M, D - 1, -1), normal(12, 4000, seed=8))
    moved = torch.stack([lift(candidates + some) for some in noise]) - lift(candidates)
    expected = moved.square().sum(dim=2).mean(dim=0) / 1e-12
    torch.testing.assert_close(at.variances(lifted_moves(lift, candidates)), expected, rtol=0.1, atol=0)
    ways = normal(2000, M, D, seed=9)
    lengths = torch.stack([(lift(candidates + 1e-6 * way) - lift(candidates)).norm(dim=1) for way in ways]) / 1e-6
    exact = lengths.square().mean(dim=0) / D
    assert float((mean_gains(lift, candidates) / exact).log().abs().max()) < 1


@pytest.mark.parametrize("free_norm", [False, True])
@pytest.mark.parametrize(("name", "k"), [("tanh", 1), ("gelu", 2)])
def test_what_moves_make_up_for_is_the_same_by_products_and_by_factors(name: str, k: int, free_norm: bool) -> None:
    loss, candidates = problem(name, k, False, p=400, free=free_norm)
    fit = loss.fit(candidates)
    exact, found = Linearised.at(loss, fit), Moved.at(loss, fit)
    assert found.features.p < exact.features.p, "fewer rows are enough"
    part = loss.part(found.features.p)
    exact = Linearised.at(part, replace(part.fit(candidates), coefficients=fit.coefficients))
    changes = found.change(normal(M, found.features.p, seed=10))
    made_up = exact.tangents @ normal(exact.tangents.shape[1], seed=11)
    changes = torch.cat([changes, made_up[None]])
    expected, left = (at.not_made_up(changes).square().sum(dim=1) for at in (exact, found))
    torch.testing.assert_close(left[:-1], expected[:-1], rtol=0.02, atol=0)
    assert float(left[-1]) < 1e-12
