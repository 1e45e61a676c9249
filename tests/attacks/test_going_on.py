"""Each method, stopped half-way: its checkpoint is for the owner alone, and it ends as if it had not been stopped."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import exhume
from exhume.attacks.dense_spans.attack import DenseSpan
from exhume.attacks.foundation.certificate import HELD_OUT_FRACTION
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.registry import method_names
from exhume.attacks.replay.attack import Replay
from exhume.attacks.running.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from exhume.recipe import Recipe
from method_cases import CASES, MethodCase

SGD = Recipe(optimiser="sgd", rate=0.1, steps=5, labels=(0, 1, 2))


def trained(body: list[nn.Module], shape: tuple[int, ...], recipe: Recipe | None = None) -> exhume.Observation:
    stream = torch.Generator().manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = nn.Sequential(*body, nn.LazyLinear(24), nn.ReLU(), nn.Linear(24, 3))
        inputs = torch.rand(3, *shape, generator=stream)
        model(inputs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=SGD.rate)
    for _ in range(SGD.steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), torch.arange(3)).backward()
        optimiser.step()
    return exhume.observe(model, initial=before, input_shape=shape, training=recipe)


def pictures() -> exhume.Observation:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return trained([nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten()], (1, 6, 6))


ALL = CASES | {
    "replay": lambda: MethodCase(trained([], (6,), SGD), Replay(iterations=16)),
    "dense-spans": lambda: MethodCase(pictures(), DenseSpan(iterations=3, start_iterations=10)),
}


def way(case: MethodCase, resume: State | None = None) -> Iterator[tuple[Step, float]]:
    """The steps, and the passes until each."""
    resources = Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    seen = case.method.view(case.observation)
    problem = case.method.open_case(seen, 0, HELD_OUT_FRACTION, resources).problem
    for step in case.method.steps(problem, resume):
        yield step, problem.loss.passes


def test_no_method_is_left_out() -> None:
    assert {case().method.name for case in ALL.values()} == set(method_names())


@pytest.mark.parametrize("name", ALL)
def test_it_ends_as_if_it_had_not_been_stopped(name: str, tmp_path: Path) -> None:
    case, path = ALL[name](), tmp_path / "a.safetensors"
    states = []
    for last, passes in way(case):  # noqa: B007
        now = {name: tensor.clone() for name, tensor in last.state.tensors.items()}  # a method may go on in place
        states.append(State(now, dict(last.state.numbers)))
    save_checkpoint(path, Checkpoint({}, states[len(states) // 2], ()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    saved = load_checkpoint(path, {})
    assert saved is not None
    *_, (again, all_passes) = way(case, saved.state)
    assert torch.equal(again.candidates, last.candidates)
    assert (again.iteration, again.loss, all_passes) == (last.iteration, last.loss, passes)
