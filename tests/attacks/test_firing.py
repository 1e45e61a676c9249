"""Firing patterns: the likelihood, its step and its variances beside naive twins, and patients out of a network."""

import copy
from dataclasses import replace
from math import log

import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import exhume
from exhume.attacks.firing.attack import FiringPatterns
from exhume.attacks.firing.belief import Belief, look, renewed
from exhume.attacks.firing.layer import FiringLayer, left_by_firing
from exhume.attacks.firing.step import best_coefficients, gauss_newton, moved, stepped
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.running.loop import run_attack
from exhume.errors import ExhumeError

H, C, M = 40, 5, 3


def layer(leak: float = 0.0, seed: int = 0) -> FiringLayer:
    stream = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=stream, dtype=torch.float64)

    halfway, moved_by = normal(H, C), 0.05 * normal(H, C)
    return FiringLayer(halfway, moved_by, normal(H, C), normal(H, 4), normal(H, 2), normal(2).abs(), leak, bias=True)


def belief(seed: int = 1, sure: bool = False) -> Belief:
    stream = torch.Generator().manual_seed(seed)
    rows = torch.randn(M, C, generator=stream, dtype=torch.float64)
    coefficients = torch.randn(M, 4, generator=stream, dtype=torch.float64)
    blur, spread = torch.tensor([[0.2, 0.05, 0.5], [0.1, 0.3, 0.2]], dtype=torch.float64).log()
    return Belief(nn.functional.normalize(rows, dim=1), coefficients, blur, spread, 0.3, 0.4, sure)


@pytest.mark.parametrize("leak", [0.0, 0.1])
def test_the_surprise_is_that_of_gaussians_written_out(leak: float) -> None:
    given, believed = layer(leak), belief()
    x, normal = believed.candidates, torch.distributions.Normal(0.0, 1.0)
    total = 0.0
    for k in range(H):
        mean, covariance = torch.zeros(C, dtype=torch.float64), believed.noise * torch.eye(C, dtype=torch.float64)
        for i in range(M):
            z, slack = given.halfway[k] @ x[i], given.moved[k] @ x[i] / 2
            width = ((believed.blurs[i] * given.usual) ** 2 + slack**2) ** 0.5
            fires = normal.cdf(z / width)
            signal = given.signals[k] @ believed.coefficients[i]
            usual = float((given.signals @ believed.coefficients[i]).square().mean())
            passes = leak + (1 - leak) * fires
            second = (1 + believed.spread[i].exp() ** 2) * (leak**2 + (1 - leak**2) * fires)
            mean = mean + passes * signal * x[i]
            covariance = covariance + (signal**2 + 0.05 * usual) * (second - passes**2) * torch.outer(x[i], x[i])
        total -= float(MultivariateNormal(mean, covariance).log_prob(given.change[k])) - C / 2 * log(2 * torch.pi)
        features = torch.nn.functional.leaky_relu(x @ given.halfway[k], leak)
        head = features @ (believed.coefficients[:, :2] * given.head_scale)
        total += float((given.head_change[k] - head).square().sum()) / 0.4 / 2 + 2 * log(0.4) / 2
    # MultivariateNormal has log sqrt(2 pi) per coordinate, which `look` leaves out
    assert look(given, believed).surprise == pytest.approx(total - H * C * log(2 * torch.pi), rel=1e-9)


def test_the_step_is_that_of_dense_normal_equations() -> None:
    """With covariances as they are and entries as the change has them; radial parts of a move change nothing."""
    given, believed = layer(), belief()
    outlook, damping = look(given, believed), 0.5
    x = believed.candidates

    def model(free: Tensor) -> Tensor:
        rows = x + free[: M * C].reshape(M, C)
        coefficients = believed.coefficients + free[M * C :].reshape(M, 4)
        z = given.halfway @ rows.T
        linear = outlook.firing + outlook.slope * (z - given.halfway @ x.T)
        signals = given.signals @ coefficients.T
        entries = outlook.entries + (linear * signals - outlook.firing * outlook.signals)
        head = (z * outlook.gates) @ (coefficients[:, :2] * given.head_scale)
        return torch.cat([(entries @ rows).flatten(), head.flatten()])

    zero = torch.zeros(M * C + M * 4, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(model, zero)
    weights = torch.block_diag(*outlook.weights, torch.eye(H * 2, dtype=torch.float64) / believed.head_noise)
    onto = torch.block_diag(*(torch.eye(C, dtype=torch.float64) - torch.outer(row, row) for row in x))
    projector = torch.block_diag(onto, torch.eye(M * 4, dtype=torch.float64))
    residual = torch.cat(
        [(given.change - (outlook.firing * outlook.signals) @ x).flatten(), outlook.head_left.flatten()]
    )
    move = gauss_newton(given, outlook, 0.0)
    step = torch.cat([move.candidates.flatten(), move.coefficients.flatten()])
    normal = projector @ jacobian.T @ weights @ jacobian @ projector
    wanted = projector @ jacobian.T @ weights @ residual
    assert torch.allclose(normal @ step, wanted, rtol=0, atol=2e-2 * float(wanted.abs().max()))
    assert stepped(given, outlook, damping)[0].surprise < outlook.surprise


def test_new_coefficients_are_those_of_least_squares_over_all_equations() -> None:
    given, believed = layer(), replace(belief(), sure=True)
    outlook = look(given, believed)
    rows = nn.functional.normalize(torch.randn(2, C, generator=torch.Generator().manual_seed(5), dtype=torch.float64))
    found = best_coefficients(given, outlook, rows, 0.5)
    firing = torch.special.ndtr(given.halfway @ rows.T / (0.5 * given.usual))
    columns = []
    for i in range(2):
        for s in range(4):
            own = (firing[:, i] * given.signals[:, s])[:, None] * rows[i] / believed.noise**0.5
            head = torch.zeros(H, 2, dtype=torch.float64)
            if s < 2:
                head[:, s] = (given.halfway @ rows[i]).relu() * given.head_scale[s] / believed.head_noise**0.5
            columns.append(torch.cat([own.flatten(), head.flatten()]))
    left = outlook.weighed * believed.noise**0.5
    wanted = torch.cat([left.flatten(), outlook.head_left.flatten() / believed.head_noise**0.5])
    stacked = torch.stack(columns, dim=1)
    gram = stacked.T @ stacked
    naive = torch.linalg.solve(gram + 1e-3 * torch.diag(gram.diagonal()), stacked.T @ wanted)
    assert torch.allclose(found.flatten(), naive, rtol=1e-8)


def test_variances_come_to_rest_where_the_change_was_drawn_from() -> None:
    """A change drawn from a belief leads from wrong variances back to those it was drawn with."""
    stream = torch.Generator().manual_seed(3)
    many = 4_000
    halfway = torch.randn(many, C, generator=stream, dtype=torch.float64)
    signals = torch.randn(many, 2, generator=stream, dtype=torch.float64)
    x = nn.functional.normalize(torch.randn(2, C, generator=stream, dtype=torch.float64), dim=1)
    coefficients = torch.tensor([[1.0, 0.3], [0.5, -1.0]], dtype=torch.float64)
    u, fires = signals @ coefficients.T, (halfway @ x.T > 0).double()
    off = 1 + 0.2 * torch.randn(many, 2, generator=stream, dtype=torch.float64)
    noise = 0.05 * torch.randn(many, C, generator=stream, dtype=torch.float64)
    change = (fires * u * off) @ x + noise
    nothing = torch.zeros(many, 1, dtype=torch.float64)
    given = FiringLayer(halfway, 0 * halfway, change, signals, nothing, torch.zeros(1).double(), 0.0, bias=True)
    wrong = torch.full((2,), log(0.05), dtype=torch.float64)
    believed = Belief(x, coefficients, torch.full((2,), log(1e-3), dtype=torch.float64), wrong, 0.5, 1.0)
    for _ in range(40):
        believed = renewed(look(given, believed), torch.full((2,), 1e-3, dtype=torch.float64))
    assert believed.noise**0.5 == pytest.approx(0.05, rel=0.05)
    assert believed.spread.exp().tolist() == pytest.approx([0.2, 0.2], rel=0.1)


def test_a_blur_grows_where_units_fire_that_should_not() -> None:
    given, believed = layer(), belief()
    still = replace(believed, blur=torch.full_like(believed.blur, log(0.01)), noise=1e-3)
    grown = renewed(look(given, still), torch.ones_like(believed.blur))
    assert (grown.blur > still.blur).all(), "nothing of this change is like the candidates"


def patients(seed: int, d: int = 6, n: int = 8, h: int = 500) -> tuple[nn.Sequential, dict[str, Tensor], Tensor]:
    """A default two-layer network on standardised columns of a medical table, with more patients than columns."""
    values, labels = load_breast_cancer(return_X_y=True)
    table = torch.tensor((values - values.mean(0)) / values.std(0), dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        chosen = torch.randperm(len(table))[:n]
        model = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, 2))
    inputs, targets = table[chosen][:, :d].contiguous(), torch.tensor(labels)[chosen]
    before = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimiser.step()
    return model, before, inputs


def errors(inputs: Tensor, found: Tensor) -> Tensor:
    return (torch.cdist(inputs, found) / inputs.norm(dim=1, keepdim=True)).min(dim=1).values


@pytest.mark.parametrize("seed", [0, 1])
def test_more_patients_than_columns_come_back(seed: int) -> None:
    model, before, inputs = patients(seed)
    found = exhume.reconstruct(exhume.observe(model, initial=before), method="firing-patterns", seed=0)
    assert int((errors(inputs, found.inputs) < 0.1).sum()) == 8
    assert found.held_out_loss is not None
    assert found.held_out_loss < 0.01
    assert not any(value >= 0.5 for value in found.certificate.confidence), "nothing is called"


def test_audits_offer_it_where_both_layers_are_known_at_both_ends() -> None:
    model, before, _ = patients(0)
    assert len(FiringPatterns.offers(exhume.observe(model, initial=before), None, 0)) == 1
    assert not FiringPatterns.offers(exhume.observe(model), None, 0)


def test_it_goes_on_from_a_round_to_the_bit() -> None:
    model, before, _ = patients(2, d=8, n=10, h=200)
    method = FiringPatterns(3)
    seen = method.view(exhume.observe(model, initial=before))
    resources = Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    steps = list(method.steps(method.open_case(seen, 0, 0.1, resources).problem))
    middle = next(step for step in steps if step.state.numbers.get("rounds") == 1)
    again = list(method.steps(method.open_case(seen, 0, 0.1, resources).problem, middle.state))
    assert again[-1].iteration == steps[-1].iteration
    assert torch.equal(again[-1].candidates, steps[-1].candidates)


def test_the_rest_is_small_for_right_candidates_and_whole_for_wrong_ones() -> None:
    stream = torch.Generator().manual_seed(8)
    halfway = torch.randn(300, 12, generator=stream, dtype=torch.float64)
    x = nn.functional.normalize(torch.randn(6, 12, generator=stream, dtype=torch.float64), dim=1)
    change = ((halfway @ x.T > 0) * torch.randn(300, 6, generator=stream, dtype=torch.float64)) @ x
    given = FiringLayer(halfway, 0 * halfway, change, change[:, :1], change[:, :1], torch.ones(1), 0.0, bias=True)
    other = nn.functional.normalize(torch.randn(6, 12, generator=stream, dtype=torch.float64), dim=1)
    assert left_by_firing(given, x) < 1e-20
    assert left_by_firing(given, other) > 0.8


def test_it_refuses_what_shows_no_start() -> None:
    model, _, _ = patients(0)
    with pytest.raises(ExhumeError, match="expected a two-layer ReLU network"):
        run_attack(exhume.observe(model), FiringPatterns(1))


def test_a_move_keeps_candidates_on_the_sphere() -> None:
    given, believed = layer(), belief()
    after = moved(believed, gauss_newton(given, look(given, believed), 0.1))
    assert torch.allclose(after.candidates.norm(dim=1), torch.ones(M, dtype=torch.float64))
