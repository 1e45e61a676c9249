"""A network's features as a case: whole groups are kept aside, and what is unseen decides."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.foundation.retraction import tangent, to_norm
from exhume.attacks.foundation.unknowns import unknown_directions
from exhume.attacks.modules import linearised
from exhume.attacks.modules.case import ModuleCase, split_coordinates
from exhume.attacks.modules.linearised import _preconditioner, dense, expected_squares, probed, split_apart
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.blends import ways
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures, axis_groups, penultimate_features
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Outcome

D, H, N, K = 6, 120, 3, 2
RESOURCES = Resources(None, torch.float64, torch.float64, torch.device("cpu"))


def network(dim: float = 1.0) -> nn.Module:
    """`dim`: how much the first layer sees of the last input."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        made = nn.Sequential(nn.Linear(D, 40), nn.Tanh(), nn.Linear(40, H), nn.Tanh(), nn.Linear(H, K)).double()
    first = made[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight[:, -1] *= dim
    return made


def observed(noise: float = 0.0, dim: float = 1.0, norm: bool = True) -> tuple[Observation, torch.Tensor]:
    stream = torch.Generator().manual_seed(1)
    samples = to_norm(torch.randn(N, D, generator=stream, dtype=torch.float64), math.sqrt(D))
    features = penultimate_features(network(dim), "4", (D,))
    weights = torch.randn(K, N, generator=stream, dtype=torch.float64) @ features(samples)
    weights = weights + noise * weights.std() * torch.randn(weights.shape, generator=stream, dtype=torch.float64)
    return Observation(features, weights, Knowledge(N, math.sqrt(D) if norm else None, "known")), samples


def case_of(noise: float = 0.0, dim: float = 1.0, norm: bool = True) -> tuple[ModuleCase, torch.Tensor]:
    observation, samples = observed(noise, dim, norm)
    case = ModuleNewton().open_case(observation, 0, 0.2, RESOURCES)
    assert isinstance(case, ModuleCase)
    return case, samples


def test_groups_are_held_out_as_a_whole_and_every_coordinate_has_one_place() -> None:
    groups = axis_groups((10, 4), 0)
    features = ModuleFeatures(lambda inputs: inputs, 40, 40, groups=groups)
    split = split_coordinates(features, 0.3, seed=0)
    parts = [set(groups[part].tolist()) for part in (split.used, split.steering, split.held_out)]
    assert [len(part) for part in parts] == [7, 1, 2]
    assert set.union(*parts) == set(range(10))
    assert sum(map(len, parts)) == 10
    assert sorted(torch.cat([split.used, split.steering, split.held_out]).tolist()) == list(range(40))


@pytest.mark.parametrize("fraction", [0.0, 0.05])
def test_nothing_is_held_out_where_nothing_can_be_or_nobody_asked(fraction: float) -> None:
    features = ModuleFeatures(lambda inputs: inputs, 4, 4, groups=torch.tensor([0, 0, 1, 1]))
    split = split_coordinates(features, fraction, seed=0)
    assert len(split.used) == 4
    assert not len(split.steering)
    assert not len(split.held_out)


def test_a_fraction_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="held-out fraction"):
        split_coordinates(observed()[0].features, 1.0, seed=0)  # type: ignore[arg-type]


def test_the_curvature_is_that_of_the_dense_jacobians() -> None:
    case, samples = case_of()
    loss = case.problem.loss
    fit = loss.fit(samples)
    jacobians = [torch.func.jacrev(lambda x: loss.features.evaluate(x[None])[0])(x) for x in samples]
    overlap = torch.tensor([[float((a * b).sum()) for b in jacobians] for a in jacobians], dtype=torch.float64)
    exact = (fit.coefficients @ fit.coefficients.T) * overlap / D
    inverse, moment = _preconditioner(loss, fit, loss.features.linearise(samples))
    assert moment is not None
    found = torch.linalg.inv(inverse)
    scale = exact.diagonal().rsqrt()
    difference = (found - exact) * scale[:, None] * scale
    assert float(difference.abs().max()) < 0.5, "two dozen random cotangents"
    mean = sum(jacobian.T @ jacobian for jacobian in jacobians)
    assert isinstance(mean, torch.Tensor)
    torch.testing.assert_close(moment @ moment.T, mean / mean.diagonal().mean(), rtol=0.5, atol=0.4)


def test_the_truth_is_trusted_and_strangers_are_not() -> None:
    case, samples = case_of()
    true = case.judge(samples)
    assert true.certificate.outcome is Outcome.RECOVERED
    assert min(true.certificate.confidence) > 0.9
    strangers = case.judge(to_norm(samples.flip(1) + 0.3, math.sqrt(D)))
    assert strangers.certificate.outcome in (Outcome.SPURIOUS, Outcome.NOT_CONVERGED)
    assert max(strangers.certificate.confidence) < 0.5


def test_features_that_drifted_a_little_leave_confident_candidates_and_a_missing_one_is_noticed() -> None:
    case, samples = case_of(noise=1e-3)
    judged = case.judge(samples)
    assert judged.certificate.outcome is Outcome.RECOVERED
    assert min(judged.certificate.confidence) > 0.5
    assert case.judge(samples[1:]).certificate.outcome is not Outcome.RECOVERED


def test_what_a_layer_on_the_way_hardly_sees_is_not_called_recovered() -> None:
    """Where norms are not known: candidates with one input turned round explain the weights as well as the samples."""
    case, samples = case_of(noise=1e-3, dim=1e-4, norm=False)
    turned = samples * torch.tensor([*[1.0] * (D - 1), -1.0]).double()
    wrong = (turned - samples).norm(dim=1) / math.sqrt(D) > 0.1
    assert bool(wrong.any())
    judged = case.judge(turned).certificate
    assert judged.held_out_loss is not None
    assert judged.held_out_loss < 1e-4, "else it proves nothing"
    assert max(judged.confidence) < 0.5
    seen, others = case_of(noise=1e-3, norm=False)
    assert min(seen.judge(others).certificate.confidence) > 0.5


@pytest.mark.parametrize("free_norms", [True, False])
def test_a_split_costs_and_moves_others_as_a_regression_on_all_columns_says(free_norms: bool) -> None:
    """The naive twin: columns of all outputs by differences, one candidate and direction at a time."""
    case, samples = case_of(noise=1e-3)
    loss = case.problem.loss
    fit, step = loss.fit(samples), 1e-6
    bases, norms = unknown_directions(samples, free_norms), samples.norm(dim=1)
    m, _, u = bases.shape
    columns = [torch.outer(one, own).flatten() for own in fit.features for one in torch.eye(len(loss.weights)).double()]
    for candidate, basis, amplitude in zip(samples, bases, fit.coefficients, strict=True):
        for way in basis.T:
            ends = loss.features(torch.stack([candidate + step * way, candidate - step * way]))
            columns.append(torch.outer(amplitude, (ends[0] - ends[1]) / (2 * step)).flatten())
    matrix = torch.stack(columns, dim=1)
    found = split_apart(loss, fit, free_norms)
    assert found is not None
    assert found.moves is not None
    for place, way in enumerate(ways(samples)):
        way = way if free_norms else tangent(way, samples)
        for index in range(m):
            aside = 0.1 * norms[index] * way[index] / way[index].norm()
            three = loss.features(torch.stack([samples[index] + aside, samples[index] - aside, samples[index]]))
            split = torch.outer(fit.coefficients[index], (three[0] + three[1]) / 2 - three[2]).flatten()
            solved = torch.linalg.lstsq(matrix, split[:, None]).solution[:, 0]
            left = split - matrix @ solved
            moved = solved[-m * u :].reshape(m, u).norm(dim=1) / norms
            torch.testing.assert_close(found.left[place, index], left.square().sum(), rtol=1e-3, atol=1e-9)
            torch.testing.assert_close(found.moves[place, index], moved, rtol=1e-3, atol=1e-7)
            rise = (fit.residual.flatten() - left).square().sum() - fit.residual.square().sum()
            assert float(left.square().sum() - 2 * found.along[place, index]) == pytest.approx(float(rise), rel=1e-2)


@pytest.mark.parametrize("norm_known", [True, False])
def test_the_error_to_expect_is_that_of_a_fit_to_noise(norm_known: bool) -> None:
    case, samples = case_of()
    loss = case.problem.loss
    clean, sizes = loss.fit(samples), samples.square().sum(dim=1)
    stream = torch.Generator().manual_seed(2)
    noise, steps = 1e-8, []
    for _ in range(200):
        noisy = noise**0.5 * torch.randn(clean.residual.shape, generator=stream, dtype=torch.float64)
        left = noisy - (clean.gram_inverse @ (clean.features @ noisy.T)).T @ clean.features
        moved = expected_squares(loss, replace(clean, residual=left), 0.0, not norm_known)
        steps.append(moved * sizes)
    found = expected_squares(loss, replace(clean, residual=torch.zeros_like(clean.residual)), noise, not norm_known)
    assert torch.allclose(torch.stack(steps).mean(dim=0), found * sizes, rtol=0.3)


def test_the_curvature_is_the_same_whatever_part_of_its_columns_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    case, samples = case_of(noise=1e-2)
    loss = case.problem.loss
    fit = loss.fit(samples)
    at_once = dense(loss, fit, True)
    monkeypatch.setattr(linearised, "HELD_NUMBERS", 2 * N * H)
    for one, other in zip(at_once, dense(loss, fit, True), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("free_norms", [False, True])
def test_products_say_of_the_curvature_what_its_factors_say(monkeypatch: pytest.MonkeyPatch, free_norms: bool) -> None:
    case, samples = case_of(noise=1e-2)
    loss = case.problem.loss
    fit = loss.fit(samples)
    monkeypatch.setattr(linearised, "PROBES", 100)
    (exact, step), (found, same) = dense(loss, fit, free_norms), probed(loss, fit, free_norms)
    assert 0.5 < float((same / step).min()) <= float((same / step).max()) < 2
    assert 0.7 < float((found / exact).min()) <= float((found / exact).max()) < 1.4


@pytest.mark.parametrize("most", [1200, 0])
def test_whatever_the_size_what_a_layer_is_blind_to_is_not_called(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One direction of six that the first layer sees at a ten-thousandth, by factors and by products."""
    monkeypatch.setattr(linearised, "DENSE", most)
    case, samples = case_of(noise=1e-3, dim=1e-4, norm=False)
    turned = samples * torch.tensor([*[1.0] * (D - 1), -1.0]).double()
    assert max(case.judge(turned).certificate.confidence) < 0.5
    seen, others = case_of(noise=1e-3, norm=False)
    assert min(seen.judge(others).certificate.confidence) > 0.5


def test_a_method_for_the_other_kind_of_features_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="expected a method for a network, found split-newton"):
        run_attack(observed()[0], SplitNewton())


def test_products_in_another_precision_are_refused() -> None:
    with pytest.raises(UsageError, match="--products"):
        run_attack(observed()[0], ModuleNewton(), products=torch.bfloat16)


def test_a_small_network_gives_its_samples_away_through_the_loop() -> None:
    observation, samples = observed()
    attacked = run_attack(observation, ModuleNewton(), dtype=torch.float64, held_out=0.1, limits=Limits(30))
    found = attacked.reconstruction
    assert found.method == "module-newton"
    nearest = torch.cdist(samples, found.candidates).min(dim=1).values / math.sqrt(D)
    assert float(nearest.max()) < 0.01
    assert [int(line["iteration"]) for line in attacked.trace] == sorted({int(x["iteration"]) for x in attacked.trace})
