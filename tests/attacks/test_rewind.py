"""Rewind: the way of the first layer beside small steps, a step of the fit beside a naive twin, digits of a network."""

import copy
from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import normalize

import exhume
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.rewind.attack import Rewind
from exhume.attacks.rewind.fit import Fit, fitted, pruned, reweighed, stepped
from exhume.attacks.rewind.path import MOMENTS, TrainedLayer, Way
from exhume.attacks.rewind.proposing import proposed
from exhume.attacks.running.loop import run_attack
from exhume.errors import ExhumeError

H, C, M, Q = 60, 5, 3, 2


def layer(leak: float = 0.0, seed: int = 0) -> TrainedLayer:
    stream = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=stream, dtype=torch.float64)

    return TrainedLayer(normal(H, C), normal(H, Q), 0.3 * normal(H, Q), leak)


def candidates(seed: int = 1, count: int = M) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(count, C, generator=stream, dtype=torch.float64), dim=1)


def fit(leak: float = 0.0) -> Fit:
    given = layer(leak)
    return reweighed(fitted(candidates(), Way.unknown(given), torch.ones(H, dtype=torch.float64)))


@pytest.mark.parametrize("leak", [0.0, 0.1])
def test_a_way_walked_back_from_its_end_begins_where_it_began(leak: float) -> None:
    """Where no unit changes its pattern: the same equations, integrated forward in many small steps."""
    x, given = candidates(), layer(leak)
    signals = 0.02 * torch.randn(M, Q, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rows, features, steps = given.end.clone(), torch.zeros(M, H, dtype=torch.float64), 2_000
    for step in range(steps):
        z = x @ rows.T
        slopes = torch.where(z > 0, 1.0, leak)
        features += z * slopes / steps
        head = given.head + (step + 0.5) / steps * given.change
        rows = rows + ((signals @ head.T) * slopes).T @ x / steps
    still = ((x @ given.end.T > 0) == (x @ rows.T > 0)).all(dim=0)
    assert int(still.sum()) > H // 2
    way = Way(replace(given, end=rows), rows, (rows,))
    for _ in range(40):
        way = way.walked_back(x, signals)
    assert torch.allclose(way.start[still], given.end[still], atol=1e-4)
    assert torch.allclose(way.features(x)[:, still], features[:, still], atol=1e-3)
    assert len(way.moments) == MOMENTS


def test_gradients_of_features_are_those_of_autograd() -> None:
    given = fit(0.1)
    way = given.way.walked_back(given.candidates, given.coefficients)
    x = given.candidates.clone().requires_grad_(True)
    slopes = torch.randn(M, H, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    (naive,) = torch.autograd.grad((way.features(x) * slopes).sum(), x)
    assert torch.allclose(way.pulled_back(given.candidates, slopes), naive)
    assert torch.allclose(torch.einsum("mh,mhc->mc", slopes, way.gradients(given.candidates)), naive)


def test_the_step_is_that_of_dense_normal_equations() -> None:
    """All weighed equations at once, the coefficients eliminated by a projection that is written out."""
    given, damping = fit(), 0.5
    root = given.weights[:, None]

    def predicted(x: Tensor) -> Tensor:
        return (given.way.features(x).T @ given.coefficients * root).flatten()

    jacobian = torch.autograd.functional.jacobian(predicted, given.candidates).reshape(H * Q, M * C)
    weighed = (given.features * given.weights).T
    off = torch.eye(H, dtype=torch.float64) - weighed @ torch.linalg.pinv(weighed)
    jacobian = torch.einsum("hg,gqn->hqn", off, jacobian.reshape(H, Q, M * C)).reshape(H * Q, M * C)
    normal = jacobian.T @ jacobian
    diagonal = normal.diagonal()
    damped = normal + damping * torch.diag(diagonal + 0.01 * diagonal.mean())
    change = torch.linalg.solve(damped, jacobian.T @ (given.residual * root).flatten()).reshape(M, C)
    after, _ = stepped(given, damping)
    assert after.left < given.left
    assert torch.allclose(after.candidates, normalize(given.candidates + change, dim=1), atol=1e-8)


def test_costs_are_what_is_left_more_without_a_candidate() -> None:
    given = fit()
    for place in range(M):
        others = torch.arange(M) != place
        without = fitted(given.candidates[others], given.way, given.weights)
        assert float(given.removal_costs[place]) == pytest.approx(without.left / given.left - 1, rel=1e-6)
    cheapest = int(given.removal_costs.argmin())
    kept = pruned(given, float(given.removal_costs.min()) * 1.001).candidates
    assert torch.equal(kept, given.candidates[torch.arange(M) != cheapest])
    assert len(pruned(given, 0.0).candidates) == M


def test_a_missing_candidate_is_proposed() -> None:
    """What is left is one candidate's part: the best proposal is that candidate."""
    given = replace(layer(), change=torch.zeros(H, Q, dtype=torch.float64))
    x = candidates(4)
    features = Way.unknown(given).features(x)
    whole = replace(given, change=features.T @ torch.tensor([[1.0, 0.5], [-0.7, 1.0], [0.8, -0.9]]).double())
    without = fitted(x[:2], Way.unknown(whole), torch.ones(H, dtype=torch.float64))
    best = proposed(without, 1, False, torch.Generator().manual_seed(5))
    assert float(best[0] @ x[2]) > 0.999


def digits(seed: int, n: int = 8, h: int = 1000) -> tuple[nn.Sequential, dict[str, Tensor], Tensor]:
    """Digits of 4 x 4 in a default two-layer network, and the start of its head."""
    table = load_digits()
    pixels = torch.tensor(table.images, dtype=torch.float32).reshape(-1, 4, 2, 4, 2).mean(dim=(2, 4)).flatten(1) / 16
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        chosen = torch.randperm(len(pixels))[:n]
        model = nn.Sequential(nn.Linear(16, h), nn.ReLU(), nn.Linear(h, 10))
    before = copy.deepcopy(model.state_dict())
    inputs, targets = pixels[chosen], torch.tensor(table.target)[chosen]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimiser.step()
    return model, {name: value for name, value in before.items() if name.startswith("2.")}, inputs


def errors(inputs: Tensor, found: Tensor) -> Tensor:
    return (torch.cdist(inputs, found) / inputs.norm(dim=1, keepdim=True)).min(dim=1).values


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_digits_come_back_without_the_start_of_the_first_layer(seed: int) -> None:
    model, start, inputs = digits(seed)
    observation = exhume.observe(model, initial=start)
    assert len(Rewind.offers(observation, None, 0)) == 1
    found = exhume.reconstruct(observation, method="rewind", seed=0)
    assert int((errors(inputs, found.inputs) < 0.1).sum()) >= 7
    assert found.held_out_loss is not None
    assert found.held_out_loss < 0.03
    assert not any(value >= 0.5 for value in found.certificate.confidence), "nothing is called"


def test_it_goes_on_from_a_round_to_the_bit() -> None:
    model, start, _ = digits(2, n=5, h=150)
    method, resources = Rewind(3), Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    seen = method.view(exhume.observe(model, initial=start))
    steps = list(method.steps(method.open_case(seen, 0, 0.1, resources).problem))
    middle = next(step for step in steps if step.state.numbers.get("rounds") == 1)
    again = list(method.steps(method.open_case(seen, 0, 0.1, resources).problem, middle.state))
    assert again[-1].iteration == steps[-1].iteration
    assert torch.equal(again[-1].candidates, steps[-1].candidates)


def test_it_refuses_other_observations() -> None:
    model, start, _ = digits(2, n=5, h=150)
    with pytest.raises(ExhumeError, match="expected a two-layer ReLU network whose head is known before training"):
        run_attack(exhume.observe(model), Rewind(1))
    moved = {name: value + 0.01 for name, value in model.state_dict().items()}
    assert not Rewind.offers(exhume.observe(model, initial=moved), None, 0), "the first layer's start is known"
    still = {**model.state_dict(), **start}
    assert not Rewind.offers(exhume.observe(model, initial=still), None, 0), "the first layer never moved"
    few = exhume.observe(nn.Sequential(nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 2)), initial=None)
    assert not Rewind.offers(few, None, 0)
