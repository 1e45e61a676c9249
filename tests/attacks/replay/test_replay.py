"""The replay method from the outside: what comes back, what is called, what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.replay.attack import Replay
from exhume.attacks.replay.case import ReplayCase, expected_errors, held_out_weights
from exhume.attacks.replay.fitting import Guess
from exhume.errors import ExhumeError, UsageError
from exhume.recipe import Recipe, read_recipe
from exhume.reconstruction import Outcome

N, D, K, WIDTH = 3, 8, 3, 48
ALONE = Resources(None, torch.float64, torch.float64, torch.device("cpu"))
SGD = Recipe(optimiser="sgd", rate=0.1, steps=10, labels=(0, 1, 2))


def _samples() -> Tensor:
    return torch.rand(N, D, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def _observed(recipe: Recipe = SGD) -> exhume.Observation:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(D, WIDTH), nn.ReLU(), nn.Linear(WIDTH, K)).double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    optimiser = kinds[recipe.optimiser](model.parameters(), lr=recipe.rate)
    for _ in range(recipe.steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(_samples()), torch.arange(N)).backward()
        optimiser.step()
    return exhume.observe(model, initial=before, training=recipe)


def _case(held_out: float = 0.1) -> ReplayCase:
    return ReplayCase.open(_observed(), 0, held_out, ALONE)


def _candidates(noise: float = 0.0) -> Tensor:
    drawn = torch.randn(N, D, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    return torch.cat([_samples() + noise * drawn, torch.eye(N, K, dtype=torch.float64)], dim=1)


def test_the_truth_is_called_recovered_and_what_is_near_it_is_not() -> None:
    case = _case()
    right = case.judge(_candidates()).certificate
    assert right.outcome is Outcome.RECOVERED
    assert min(right.confidence) > 0.99
    near = case.judge(_candidates(0.01)).certificate
    assert near.outcome is Outcome.NOT_CONVERGED
    assert max(near.confidence) == 0


def test_samples_that_the_weights_do_not_determine_have_no_expected_error_to_trust() -> None:
    """Four weights are fewer than there are unknowns."""
    loss = _case().problem.loss
    guess = Guess(_samples(), torch.eye(N, K, dtype=torch.float64))
    whole = expected_errors(loss, guess, 1e-12)
    blind = replace(loss, scale=torch.zeros_like(loss.scale).index_fill(0, torch.arange(4), 1.0))
    assert float(whole.max()) < 1e-3
    assert float(expected_errors(blind, guess, 1e-12).min()) > 1


def test_a_jacobian_that_does_not_fit_calls_nobody() -> None:
    whole = _case()
    loss = whole.problem.loss
    tight = replace(loss, training=replace(loss.training, memory=10_000))
    certificate = replace(whole, problem=replace(whole.problem, loss=tight)).judge(_candidates()).certificate
    assert certificate.outcome is Outcome.NOT_CONVERGED
    assert max(certificate.confidence) == 0


def test_the_expected_error_is_that_of_noise_on_the_weights() -> None:
    """The naive twin: the scatter of least-squares answers to noise, by a dense Jacobian of finite differences."""
    loss = _case().problem.loss
    guess = Guess(_samples(), torch.eye(N, K, dtype=torch.float64))
    used, h = loss.scale > 0, 1e-6

    def end(inputs: Tensor) -> Tensor:
        return (loss.training.path(inputs, guess.targets)[0][-1] * loss.scale)[used]

    columns = []
    for place in range(N * D):
        moved = torch.zeros(N * D, dtype=torch.float64).index_fill(0, torch.tensor([place]), h).reshape(N, D)
        columns.append((end(guess.inputs + moved) - end(guess.inputs - moved)) / (2 * h))
    jacobian = torch.stack(columns, dim=1)
    noise = 1e-12 * loss.size**2 / (int(used.sum()) - N * D)
    scatter = noise * torch.linalg.inv(jacobian.T @ jacobian).diagonal().reshape(N, D).sum(dim=1)
    expected = scatter.sqrt() / guess.inputs.norm(dim=1)
    torch.testing.assert_close(expected_errors(loss, guess, 1e-12), expected, rtol=1e-3, atol=0)


def test_it_goes_on_from_any_stage_with_the_best_guess_and_the_count_of_passes() -> None:
    method = Replay(iterations=16)

    def way(state: State | None = None) -> list[tuple[Step, float]]:
        problem = _case().problem
        return [(step, problem.loss.passes) for step in method.steps(problem, state)]

    whole = way()
    late, ended = whole[-2][0], whole[-1][0]
    assert ended.loss < 0.5 * late.notes["unexplained"] ** 2, "the best guess is an early one, which has to be kept"
    for step, _ in whole[:: len(whole) // 5]:
        again, passes = way(step.state)[-1]
        assert torch.equal(again.candidates, ended.candidates)
        assert (again.loss, again.iteration, passes) == (ended.loss, ended.iteration, whole[-1][1])


def test_held_out_weights_are_whole_units_and_never_fitted() -> None:
    case = _case()
    network, unseen = case.problem.loss.training.network, case.unseen
    into, bias = network.layers[0].split(unseen)
    assert bias is not None
    assert torch.equal(into.all(dim=1), into.any(dim=1))
    assert torch.equal(into.any(dim=1), bias)
    assert torch.equal(network.layers[1].split(unseen)[0].all(dim=0), bias)
    assert not bool(case.problem.loss.scale[unseen].any())
    assert not bool(held_out_weights(network, 0.0, 0).any())
    assert _case(held_out=0.0).judge(_candidates()).certificate.outcome is Outcome.NOT_CONVERGED


@pytest.mark.parametrize(
    ("observation", "complaint"),
    [
        (replace(_observed(), recipe=None), "expected a network with its recipe"),
        (replace(_observed(), ends=None), "expected a network with its recipe"),
        (_observed(SGD.model_copy(update={"labels": None})), "expected the number of samples"),
        (_observed(SGD.model_copy(update={"labels": (0, 1, 7)})), "expected labels below 3"),
    ],
)
def test_what_is_missing_is_refused_in_one_line(observation: exhume.Observation, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        exhume.reconstruct(observation, method="replay")


def test_a_recipe_is_read_from_json_and_wrong_ones_are_named(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(SGD.model_dump_json())
    assert read_recipe(path) == SGD
    path.write_text('{"optimiser": "lion", "rate": 1, "steps": 2}')
    with pytest.raises(ExhumeError, match="found optimiser"):
        read_recipe(path)
    for text in ("no json", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ExhumeError, match="as JSON"):
            read_recipe(path)
