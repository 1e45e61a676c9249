"""Raw digits in a network of few units: samples alike, units that mostly fire. The search alone leaves some behind."""

import copy
import itertools
from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import exhume
from exhume import seeds
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.foundation.spectrum import spectrum
from exhume.attacks.silent.head_start import HeadStart
from exhume.attacks.silent.search import nothing_found, with_places
from exhume.attacks.silent.span import Span, open_span
from exhume.attacks.subspace.staged import StagedProblem
from exhume.metrics.errors import relative_errors
from exhume.observation import Observation

RESOURCES = Resources(None, torch.float32, torch.float32, torch.device("cpu"))


def digits(seed: int) -> tuple[Tensor, Tensor]:
    values, labels = load_digits(return_X_y=True)
    chosen = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))[:20]
    return torch.tensor(values / 16, dtype=torch.float32)[chosen], torch.tensor(labels)[chosen]


def observed(seed: int, *sizes: int) -> tuple[Observation, Tensor]:
    inputs, labels = digits(seed)
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))
    before = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(300):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return exhume.observe(model, initial=before), inputs


def opened(observation: Observation) -> tuple[Span, Tensor]:
    """The span on the units that the search may use, and their numbers."""
    states = observation.layers[0]
    used = torch.rand(states.h, generator=seeds.generator(0, "held-out")) >= 0.1
    return open_span(states, spectrum(states, used.nonzero()[:, 0]), used)[0], used.nonzero()[:, 0]


def test_places_from_the_head_settle_at_samples() -> None:
    observation, inputs = observed(1, 64, 512, 10)
    span, units = opened(observation)
    head = HeadStart.of(observation, observation.layers[0], units, 0, 0.05, RESOURCES)
    assert head is not None
    *_, points = head.points(span)
    found = with_places(span, nothing_found(span), points)
    extended = torch.cat([inputs, torch.ones(20, 1)], dim=1).double()
    samples = torch.linalg.lstsq(span.unscale.T, extended.T).solution.T
    duals = torch.nn.functional.normalize(torch.linalg.pinv(samples).T, dim=1)
    exact = (found.duals @ duals.T).abs().amax(dim=1) > 1 - 1e-4
    assert int(exact.sum()) >= 5
    assert found.idle == 0


def test_units_that_were_held_out_are_not_looked_at() -> None:
    observation, _ = observed(1, 64, 512, 10)
    _, units = opened(observation)
    left_out = torch.ones(512, dtype=torch.bool)
    left_out[units] = False
    spoilt = observation.weights.clone()
    spoilt[:, left_out] = 1e6
    heads = [
        HeadStart.of(seen, seen.layers[0], units, 0, 0.05, RESOURCES)
        for seen in (observation, replace(observation, weights=spoilt))
    ]
    problems = [head.case.problem for head in heads if head is not None]
    first, second = (
        problem.cases[0].problem.loss.weights for problem in problems if isinstance(problem, StagedProblem)
    )
    assert torch.equal(first, second)


def test_the_head_of_a_deeper_network_is_a_start_too() -> None:
    observation, _ = observed(1, 64, 100, 200, 10)
    span, units = opened(observation)
    head = HeadStart.of(observation, observation.layers[0], units, 0, 0.05, RESOURCES)
    assert head is not None
    points = next(head.points(span))
    assert points.shape[1] == span.r
    assert torch.isfinite(span.inputs(points)).all()


def test_a_head_whose_start_nobody_knows_is_none() -> None:
    observation, _ = observed(1, 64, 512, 10)
    _, units = opened(observation)
    unknown = replace(observation, knowledge=replace(observation.knowledge, initial="distribution"))
    assert HeadStart.of(unknown, observation.layers[0], units, 0, 0.05, RESOURCES) is None


@pytest.mark.parametrize(("seed", "sizes"), [(1, (64, 512, 10)), (4, (64, 512, 2048, 10))])
def test_raw_digits_come_back_to_the_last_one(seed: int, sizes: tuple[int, ...]) -> None:
    observation, inputs = observed(seed, *sizes)
    found = exhume.reconstruct(observation, method="silent-units", budget_seconds=60)
    assert found.facts["rank"] == 20
    assert int((relative_errors(inputs.double(), found.inputs.double()) < 0.1).sum()) == 20
