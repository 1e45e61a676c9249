"""Dense layers behind convolutions: what they read spans their change, and pictures come back from it."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.attacks.dense_spans.attack import DenseProblem, DenseSpan
from exhume.attacks.dense_spans.search import agreed
from exhume.attacks.dense_spans.spans import DenseSpans
from exhume.attacks.foundation.certificate import HELD_OUT_FRACTION
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.running.budget import Limits
from exhume.attacks.running.loop import run_attack
from exhume.errors import UsageError
from exhume.network_ends import NetworkEnds
from exhume.observation import Observation
from exhume.reconstruction import Outcome

SIDE, N = 12, 3


def network() -> nn.Sequential:
    body = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(100, 60), nn.ReLU(), nn.Linear(60, 30), nn.ReLU(), nn.Linear(30, 3))


def pictures(seed: int) -> Tensor:
    coarse = torch.rand(N, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=False)


def trained(steps: int = 60) -> tuple[nn.Sequential, nn.Sequential, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = network()
    before, inputs, labels = copy.deepcopy(model), pictures(1), torch.arange(N)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return before, model, inputs


def observed() -> tuple[Observation, Tensor]:
    before, after, inputs = trained()
    seen = exhume.observe(after, initial=before.state_dict(), input_shape=(1, SIDE, SIDE))
    return replace(seen, image_shape=(1, SIDE, SIDE)), inputs


def correlations(first: Tensor, second: Tensor) -> Tensor:
    rows = [part.flatten(1) - part.flatten(1).mean(1, keepdim=True) for part in (first, second)]
    return nn.functional.cosine_similarity(rows[0][:, None], rows[1][None], dim=2)


def test_samples_span_the_change_of_the_layers_and_other_pictures_do_not() -> None:
    before, after, inputs = trained()
    spans = DenseSpans.of(NetworkEnds(before, after), (1, SIDE, SIDE), torch.zeros(1))
    assert list(spans.changes) == ["4", "6"]
    own, others = spans.shares(inputs.flatten(1)), spans.shares(pictures(2).flatten(1))
    assert float(own["4"]) < 0.05
    assert float(own["4"]) < float(others["4"]) / 4


def test_combinations_are_the_least_squares_of_the_change() -> None:
    before, after, inputs = trained()
    spans = DenseSpans.of(NetworkEnds(before, after), (1, SIDE, SIDE), torch.zeros(1, dtype=torch.float64))
    directions = spans.read(inputs.double().flatten(1))["4"]
    naive = torch.linalg.lstsq(directions.T, spans.changes["4"].T).solution.T
    rest = spans.changes["4"] - naive @ directions
    share = rest.square().sum() / spans.changes["4"].square().sum()
    assert float(spans.shares(inputs.double().flatten(1))["4"]) == pytest.approx(float(share), rel=1e-2)


def test_networks_without_such_layers_are_left_out() -> None:
    dense = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 30), nn.ReLU(), nn.Linear(30, 3))
    later = copy.deepcopy(dense)
    with torch.no_grad():
        for parameter in later.parameters():
            parameter.add_(1)
    assert not DenseSpans.of(NetworkEnds(dense, later), (1, SIDE, SIDE), torch.zeros(1)).changes
    seen = exhume.observe(later, initial=dense.state_dict(), input_shape=(1, SIDE, SIDE))
    assert DenseSpan.offers(seen, None, 0) == ()
    with pytest.raises(UsageError, match="expected"):
        run_attack(replace(seen, image_shape=(1, SIDE, SIDE)), DenseSpan())


def test_the_mean_of_starts_keeps_what_they_share() -> None:
    stream = torch.Generator().manual_seed(3)
    true = torch.randn(3, 50, generator=stream)
    noise = 0.5 * torch.randn(6, 3, 50, generator=stream)
    runs = torch.stack([(true + noise[run])[torch.randperm(3, generator=stream)] for run in range(6)])
    mean, shown = agreed(runs, torch.arange(6.0))
    error = torch.cdist(true, mean).amin(dim=1) / true.norm(dim=1)
    assert shown.tolist() == [6, 6, 6]
    assert float(error.max()) < 0.3 < float(torch.cdist(true, runs[0]).amin(dim=1).max() / true.norm(dim=1).max())


def test_pictures_come_back_and_stay_inconclusive() -> None:
    observation, inputs = observed()
    (offer,) = DenseSpan.offers(observation, None, 0)
    assert offer.method == "dense-spans"
    found = run_attack(observation, DenseSpan(iterations=3)).reconstruction
    assert found.outcome is Outcome.NOT_CONVERGED
    assert found.trusted == 0
    assert found.held_out_loss is not None
    assert found.held_out_loss < 0.2
    best = correlations(inputs, found.candidates.reshape(-1, 1, SIDE, SIDE)).amax(dim=1)
    chance = correlations(pictures(2), found.candidates.reshape(-1, 1, SIDE, SIDE)).amax(dim=1)
    assert float(best.mean()) > float(chance.mean()) + 0.1, "pictures of the kind that were not trained on"


def test_an_attack_that_was_stopped_ends_as_one_that_was_not() -> None:
    observation, _ = observed()
    whole = run_attack(observation, DenseSpan(iterations=2, start_iterations=10))
    steps = list(DenseSpan(iterations=2, start_iterations=10).steps(_problem(observation)))
    later = list(DenseSpan(iterations=2, start_iterations=10).steps(_problem(observation), steps[1].state))
    assert torch.equal(steps[-1].candidates, later[-1].candidates)
    assert torch.equal(steps[-1].candidates, whole.reconstruction.candidates)
    stopped = run_attack(observation, DenseSpan(), limits=Limits(0.001))
    assert stopped.stopped


def _problem(observation: Observation) -> DenseProblem:
    resources = Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    return DenseSpan().open_case(observation, 0, HELD_OUT_FRACTION, resources).problem
