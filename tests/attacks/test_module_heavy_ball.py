import math

import pytest
import torch
from torch import nn

import exhume
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.foundation.state import Step
from exhume.attacks.heavy_ball import HeavyBall, ModuleHeavyBall, published_step
from exhume.attacks.modules.case import ModuleCase
from exhume.attacks.modules.problem import ModuleProblem
from exhume.attacks.running.loop import run_attack
from exhume.errors import UsageError
from exhume.features.module import penultimate_features
from exhume.metrics.errors import reconstruction_error
from exhume.observation import Knowledge, Observation

D, N, WIDTH = 6, 2, 150


def observed(outputs: int = 1, norm: float | None = math.sqrt(D)) -> tuple[Observation, nn.Sequential, torch.Tensor]:
    """Weights that are in the span of a network's features exactly."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        layers = [nn.Linear(D, 20), nn.Tanh(), nn.Linear(20, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs, bias=False)]
        body = nn.Sequential(*layers).double()
        samples = to_norm(torch.randn(N, D, dtype=torch.float64), math.sqrt(D))
        coefficients = torch.randn(outputs, N, dtype=torch.float64)
    features = penultimate_features(body, "4", (D,))
    return Observation(features, coefficients @ features(samples).detach(), Knowledge(N, norm)), body, samples


def problem_of(observation: Observation) -> ModuleProblem:
    resources = Resources(None, torch.float64, torch.float64, torch.device("cpu"))
    return ModuleCase.open(observation, 0, 0.0, resources).problem


def iterates(method: ModuleHeavyBall, observation: Observation) -> list[Step]:
    return list(method.steps(problem_of(observation)))


@pytest.mark.parametrize("outputs", [1, 3])
def test_steps_are_those_of_torchs_optimiser_through_the_network(outputs: int) -> None:
    """The naive twin: autograd through body and projection, torch's momentum, rows renormalised."""
    observation, body, _ = observed(outputs)
    steps = iterates(ModuleHeavyBall(step_size=2.0, iterations=15, tolerance=0.0), observation)
    candidates = steps[0].candidates.clone().requires_grad_()
    optimiser = torch.optim.SGD([candidates], lr=2.0, momentum=0.9)
    weights = observation.weights.double()
    for _ in range(15):
        features = body[:4](candidates)
        coefficients = torch.linalg.solve(features @ features.T, features @ weights.T)
        loss = (weights - coefficients.T @ features).square().sum() / weights.square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            candidates.mul_(math.sqrt(D) / candidates.norm(dim=1, keepdim=True))
    torch.testing.assert_close(steps[15].candidates, candidates.detach(), atol=1e-8, rtol=0)
    assert (steps[15].candidates - steps[0].candidates).norm(dim=1).min() > 0.01


def test_the_name_finds_the_version_for_the_observation() -> None:
    """It is told n, has no surrogate slope on networks, and finds what there is to find."""
    observation, _, samples = observed()
    found = exhume.reconstruct(observation, method="heavy-ball", samples=N, step=2.0, iterations=3000)
    assert found.method == "heavy-ball"
    assert reconstruction_error(samples, found.candidates.double()) < 0.05
    with pytest.raises(UsageError, match="--inactive-slope"):
        exhume.reconstruct(observation, method="heavy-ball", samples=N, inactive_slope=0.02)


def test_free_norms_are_taken_for_the_published_one() -> None:
    observation, _, _ = observed(norm=None)
    for step in iterates(ModuleHeavyBall(iterations=2), observation):
        torch.testing.assert_close(step.candidates.norm(dim=1), torch.full((N,), math.sqrt(D), dtype=torch.float64))


def test_going_on_from_any_state_gives_the_same_bits() -> None:
    observation, _, _ = observed()
    method = ModuleHeavyBall(step_size=2.0, iterations=8, tolerance=0.0)
    steps = iterates(method, observation)
    resumed = list(method.steps(problem_of(observation), steps[3].state))
    assert torch.equal(resumed[-1].candidates, steps[-1].candidates)
    assert resumed[-1].state.numbers == steps[-1].state.numbers


def test_the_step_is_the_published_one_and_n_has_to_be_told() -> None:
    observation, _, _ = observed()
    default, same = (
        iterates(ModuleHeavyBall(iterations=2, step_size=step), observation)[-1].candidates
        for step in (None, published_step(D))
    )
    assert torch.equal(default, same)
    with pytest.raises(UsageError, match="--samples"):
        run_attack(observation.knowing(None), ModuleHeavyBall(iterations=2), seed=0)
    with pytest.raises(UsageError, match="at least 1 iteration"):
        ModuleHeavyBall(iterations=0)
    assert HeavyBall().tolerance == ModuleHeavyBall().tolerance == 1e-7
