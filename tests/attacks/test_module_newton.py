import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from exhume.attacks.foundation.projection import Projection, removal_costs
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.modules.coordinates import Coordinates
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.modules.problem import ModuleProblem
from exhume.attacks.modules.quasi_newton import QuasiNewton, Run, descend, evaluate
from exhume.attacks.modules.span import GeneralSpanLoss
from exhume.errors import ExhumeError, UsageError
from exhume.features.module import ModuleFeatures, penultimate_features
from exhume.metrics.errors import signed_error

SHAPE = (3, 4, 4)
D, N, K = 48, 3, 2
NORM = math.sqrt(D)


class SmallNet(nn.Module):
    def __init__(self, channels: int = 24) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.head = nn.Linear(16 * channels, K, bias=False)
        for layer, fan_in in ((self.first, 27), (self.second, 9 * channels), (self.head, 16 * channels)):
            nn.init.normal_(layer.weight, std=fan_in**-0.5)

    def forward(self, images: Tensor) -> Tensor:
        first = torch.relu(self.first(images))
        return self.head(torch.relu(first + self.second(first)).flatten(1))


def small_features() -> ModuleFeatures:
    torch.manual_seed(5)
    return penultimate_features(SmallNet().double(), "head", SHAPE)


def smooth_samples(count: int = N) -> Tensor:
    drawn = torch.randn(count, D, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    return Coordinates.smooth(NORM, SHAPE, 1.0, drawn).rows_at(drawn)


def problem_of(samples: int | None = N, noise: float = 0.0, norm: float | None = NORM, seed: int = 0) -> ModuleProblem:
    features, stream = small_features(), torch.Generator().manual_seed(2)
    weights = torch.randn(K, N, generator=stream, dtype=torch.float64) @ features(smooth_samples())
    weights += noise * weights.std() * torch.randn(weights.shape, generator=stream, dtype=torch.float64)
    loss = GeneralSpanLoss(features, weights, torch.float64)
    return ModuleProblem(loss, norm, samples, seed, lambda _: None, torch.float64, torch.device("cpu"), SHAPE)


QUICK = ModuleNewton(polish_iterations=25, stage_iterations=12, starts=2)


def run(method: ModuleNewton, problem: ModuleProblem, resume: State | None = None) -> list[Step]:
    return list(method.steps(problem, resume))


@pytest.mark.parametrize("chunk", [2, 64])
def test_the_gradient_is_that_of_the_dense_projected_loss(chunk: int) -> None:
    features = small_features()
    features = ModuleFeatures(features.function, features.d, features.p, torch.float64, chunk=chunk)
    loss = GeneralSpanLoss(features, problem_of().loss.published, torch.float64)
    candidates = torch.randn(5, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    fit, gradient = loss.fit_with_gradient(candidates)
    moving = candidates.clone().requires_grad_()
    mapped = features.function(moving)
    projector = mapped.T @ torch.linalg.solve(mapped @ mapped.T, mapped)
    naive = (loss.weights - loss.weights @ projector).square().sum() / loss.weights.square().sum()
    assert fit.loss == pytest.approx(naive.item(), rel=1e-9)
    torch.testing.assert_close(gradient, torch.autograd.grad(naive, moving)[0], rtol=1e-7, atol=1e-12)
    assert loss.passes == 2


def test_removal_costs_are_what_a_refit_without_the_candidate_costs() -> None:
    loss = problem_of().loss
    fit = loss.fit(torch.randn(4, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    costs, passes = removal_costs(fit, loss), loss.passes
    loss.restricted(fit, [0, 2])
    assert loss.passes == passes
    for index in range(4):
        kept = [other for other in range(4) if other != index]
        assert loss.restricted(fit, kept).loss == pytest.approx(loss.fit(fit.candidates[kept]).loss, rel=1e-9)
        assert loss.restricted(fit, kept).loss - fit.loss == pytest.approx(float(costs[index]), rel=1e-6)


def test_held_out_coordinates_are_predicted_at_the_truth_only() -> None:
    problem = problem_of()
    used, unseen = torch.arange(0, 300), torch.arange(300, 384)
    features, weights = problem.loss.features, problem.loss.published
    loss = GeneralSpanLoss(features.part(used), weights[:, used], torch.float64)
    judge = GeneralSpanLoss(features.part(unseen), weights[:, unseen], torch.float64)
    truth = smooth_samples()
    assert judge.predict_loss(truth, loss.fit(truth).coefficients * loss.scale) < 1e-20
    other = truth.flip(1)
    assert judge.predict_loss(other, loss.fit(other).coefficients * loss.scale) > 0.1


def test_all_zero_weights_are_refused() -> None:
    with pytest.raises(ExhumeError, match="nothing was learned"):
        GeneralSpanLoss(small_features(), torch.zeros(K, 384))


@pytest.mark.parametrize("norm", [NORM, None])
@pytest.mark.parametrize("make", [lambda norm, z: Coordinates.smooth(norm, SHAPE, 1.0, z), lambda n, _: Coordinates(n)])
def test_coordinates_carry_gradients_and_come_back(
    norm: float | None, make: Callable[[float | None, Tensor], Coordinates]
) -> None:
    stream = torch.Generator().manual_seed(4)
    z = torch.randn(3, D, generator=stream, dtype=torch.float64, requires_grad=True)
    pulled = torch.randn(3, D, generator=stream, dtype=torch.float64)
    coordinates = make(norm, z.detach())
    candidates = coordinates.rows_at(z)
    expected = torch.autograd.grad(candidates, z, pulled)[0]
    torch.testing.assert_close(coordinates.gradient_at(z.detach(), pulled), expected)
    back = coordinates.coordinates_of(candidates.detach())
    torch.testing.assert_close(coordinates.rows_at(back), candidates.detach())
    if norm is not None:
        torch.testing.assert_close(candidates.detach().norm(dim=1), torch.full((3,), norm, dtype=torch.float64))


def test_smooth_rows_vary_less_between_neighbours_than_white_ones() -> None:
    z = torch.randn(50, D, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    smooth = Coordinates.smooth(NORM, SHAPE, 1.0, z).rows_at(z).reshape(50, *SHAPE)
    assert (
        smooth.diff(dim=3).square().mean()
        < 0.8 * Coordinates(NORM).rows_at(z).reshape(smooth.shape).diff(dim=3).square().mean()
    )
    assert smooth.square().mean() == pytest.approx(1.0)


def test_the_two_loops_are_the_dense_bfgs_inverse() -> None:
    stream = torch.Generator().manual_seed(9)
    steps = torch.randn(3, 2, 3, generator=stream, dtype=torch.float64)
    factor = torch.randn(6, 6, generator=stream, dtype=torch.float64)
    changes = (steps.reshape(3, 6) @ (factor @ factor.T + torch.eye(6))).reshape(3, 2, 3)
    gradient = torch.randn(2, 3, generator=stream, dtype=torch.float64)
    pairs = list(zip(steps.reshape(3, 6), changes.reshape(3, 6), strict=True))
    inverse = torch.eye(6, dtype=torch.float64) * (pairs[-1][0] @ pairs[-1][1]) / (pairs[-1][1] @ pairs[-1][1])
    for step, change in pairs:
        left = torch.eye(6, dtype=torch.float64) - torch.outer(step, change) / (step @ change)
        inverse = left @ inverse @ left.T + torch.outer(step, step) / (step @ change)
    torch.testing.assert_close(descend(gradient, steps, changes).reshape(6), -inverse @ gradient.reshape(6))


def runs_from(problem: ModuleProblem, z: Tensor, iterations: int) -> list[Run[Projection]]:
    coordinates, rule = Coordinates.smooth(problem.norm, SHAPE, 1.0, z), QuasiNewton()
    return list(rule.refine(problem.loss, coordinates, rule.start(problem.loss, coordinates, z), iterations))


def test_the_loss_never_rises_and_falls_a_lot() -> None:
    z = torch.randn(4, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    runs = runs_from(problem_of(), z, 60)
    losses = [run.point.fit.loss for run in runs]
    assert all(after < before for before, after in itertools.pairwise(losses))
    assert losses[-1] < 0.05 * losses[0]
    assert len(runs[-1].steps) == 20


def test_a_step_that_would_overshoot_is_shortened() -> None:
    problem, truth = problem_of(), smooth_samples()
    coordinates, rule = Coordinates.smooth(NORM, SHAPE, 1.0, truth), QuasiNewton()
    nearby = torch.randn(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = coordinates.coordinates_of(truth) + 0.05 * nearby
    fresh = rule.start(problem.loss, coordinates, z)
    flat = Run(fresh.point, z[None], 1e-9 * z[None])  # pretends that there is hardly any curvature
    full = evaluate(problem.loss, coordinates, z + descend(fresh.point.gradient, flat.steps, flat.changes))
    assert full.fit.loss > fresh.point.fit.loss
    assert next(rule.refine(problem.loss, coordinates, flat, 1)).point.fit.loss < fresh.point.fit.loss


def test_candidates_in_another_order_are_found_in_that_order() -> None:
    problem = problem_of()
    z = torch.randn(4, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.tensor([2, 0, 3, 1])
    plain, permuted = runs_from(problem, z, 15)[-1], runs_from(problem, z[order], 15)[-1]
    torch.testing.assert_close(permuted.point.z, plain.point.z[order], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("samples", [N, None])
def test_an_attack_resumed_anywhere_goes_on_as_if_undisturbed(samples: int | None) -> None:
    whole = run(QUICK, problem_of(samples))
    phases = [step.notes["phase"] for step in whole]
    for place in sorted({5, len(whole) - 4, phases.index(2)}):
        problem = problem_of(samples)
        rest = run(QUICK, problem, whole[place].state)
        assert [step.iteration for step in rest] == [step.iteration for step in whole[place + 1 :]]
        assert torch.equal(rest[-1].candidates, whole[-1].candidates)
        assert [step.loss for step in rest] == [step.loss for step in whole[place + 1 :]]
        numbers = [step.state.numbers for step in rest]
        assert numbers == [step.state.numbers for step in whole[place + 1 :]], "passes are counted once"


@pytest.mark.parametrize("samples", [N, None])
@pytest.mark.parametrize("limit", [1, 12, 20])
def test_the_number_of_iterations_bounds_the_whole_attack(samples: int | None, limit: int) -> None:
    steps = run(replace(QUICK, iterations=limit), problem_of(samples))
    assert steps[-1].iteration == limit
    assert len(steps[-1].candidates) > 0
    if samples is not None:
        assert len(steps[-1].candidates) == samples, "there are no more samples than that"


def test_a_search_that_is_stopped_keeps_the_candidates_that_the_weights_need_most() -> None:
    truth = smooth_samples()
    stream = torch.Generator().manual_seed(3)
    others = Coordinates(NORM).rows_at(torch.randn(2, D, generator=stream, dtype=torch.float64))
    kept = QUICK.finish(problem_of(), torch.cat([others[:1], truth, others[1:]]))
    assert torch.equal(kept, truth)
    assert torch.equal(QUICK.finish(problem_of(None), others), others)


def test_an_attack_resumed_at_its_end_has_the_result() -> None:
    whole = run(QUICK, problem_of())
    again = run(QUICK, problem_of(), whole[-1].state)
    assert len(again) == 1
    assert torch.equal(again[0].candidates, whole[-1].candidates)


def test_samples_come_back_with_their_signs_when_their_number_is_told() -> None:
    steps = run(ModuleNewton(polish_iterations=300, starts=1), problem_of())
    assert steps[-1].candidates.shape == (N, D)
    assert signed_error(smooth_samples(), steps[-1].candidates) < 1e-3
    assert steps[-1].loss < 1e-7


def test_the_number_of_samples_is_found_and_noise_is_not_fitted_by_more() -> None:
    problem = problem_of(samples=None, noise=0.01)
    steps = run(ModuleNewton(polish_iterations=300), problem)
    floor = problem.loss.fit(smooth_samples()).loss
    assert len(steps[-1].candidates) == N
    assert signed_error(smooth_samples(), steps[-1].candidates) < 0.05
    assert 0.3 * floor < steps[-1].loss < floor


def test_free_norms_are_left_to_the_coefficients_of_homogeneous_features() -> None:
    """SmallNet has no bias and ReLUs only: g(t x) = t g(x), so directions are all that can be found."""
    steps = run(ModuleNewton(polish_iterations=300, starts=1), problem_of(norm=None))
    found = steps[-1].candidates
    assert steps[-1].loss < 1e-6
    assert signed_error(smooth_samples(), NORM * found / found.norm(dim=1, keepdim=True)) < 0.01


def test_a_start_that_predicts_the_steering_weights_ends_the_scouting() -> None:
    plain = problem_of()
    eager = ModuleProblem(plain.loss, NORM, N, 0, lambda _: 1e-4, torch.float64, torch.device("cpu"), SHAPE)
    scouting = [sum(step.notes["phase"] == 0 for step in run(QUICK, each)) for each in (eager, problem_of())]
    assert scouting[0] == QUICK.stage_iterations
    assert scouting[1] == 2 * QUICK.stage_iterations + 1, "the end of the first start is shown as well"


def test_polishing_ends_where_the_steering_weights_no_longer_agree() -> None:
    told = iter([1e-4, *range(1, 100)])  # good at once, worse at every later look
    plain = problem_of()
    warned = ModuleProblem(
        plain.loss, NORM, N, 0, lambda _: float(next(told)), torch.float64, torch.device("cpu"), SHAPE
    )
    steps = run(QUICK, warned)
    polishing = [step for step in steps if step.notes["phase"] == 3]
    assert steps[-1].loss == polishing[0].loss, "what was there before the polish is the result"
    assert min(step.loss for step in polishing) < steps[-1].loss


def test_cross_validation_prefers_fewer_candidates_at_the_same_loss() -> None:
    loss = problem_of(noise=0.1).loss
    truth = smooth_samples(4)
    few, more = loss.fit(truth[:N]), loss.fit(truth)
    assert more.loss < few.loss < loss.cross_validated(few) < loss.cross_validated(more)


def test_evaluating_counts_two_passes() -> None:
    problem = problem_of()
    evaluate(problem.loss, Coordinates(NORM), smooth_samples())
    assert problem.loss.passes == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"iterations": 0}, "at least 1 iteration"),
        ({"stage_iterations": 0}, "at least 1 iteration"),
        ({"polish_iterations": 0}, "at least 1 iteration"),
        ({"widening": 0.9}, "as many candidates as samples"),
        ({"starts": 0}, "at least 1 start"),
        ({"excess": 0.5}, "as many candidates as samples"),
    ],
)
def test_impossible_settings_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ModuleNewton(**fields)  # type: ignore[arg-type]
