import copy

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.attacks.modules.affine_span import AffineSpan
from exhume.features.module import ModuleFeatures
from exhume.metrics.errors import relative_errors
from exhume.observation import Knowledge, Observation

D, N = 30, 6


def observed(bias: bool, activation: type[nn.Module] = nn.ReLU, seed: int = 0) -> tuple[Observation, Tensor]:
    torch.manual_seed(seed)
    inputs, labels = torch.randn(N, D) + 1, torch.arange(N) % 3
    model = nn.Sequential(
        nn.Linear(D, 200, bias=bias), activation(), nn.Linear(200, 300), activation(), nn.Linear(300, 3)
    )
    before = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return exhume.observe(model, initial=before), inputs


@pytest.mark.parametrize("bias", [True, False])
def test_all_samples_lie_in_the_span_that_the_first_layer_shows(bias: bool) -> None:
    observation, inputs = observed(bias)
    span = AffineSpan.of(observation, torch.zeros(1, dtype=torch.float64))
    assert span is not None
    assert (span.rank, span.numbers) == (N, N - bias)
    samples = inputs.double()
    torch.testing.assert_close(span.rows_at(span.coordinates_of(samples)), samples, rtol=1e-3, atol=1e-3)
    other = torch.randn(1, D, dtype=torch.float64)
    assert float((span.rows_at(span.coordinates_of(other)) - other).norm()) > 1


def test_gradients_are_those_of_the_coordinates() -> None:
    observation, _ = observed(True)
    span = AffineSpan.of(observation, torch.zeros(1, dtype=torch.float64))
    assert span is not None
    z = torch.randn(2, span.numbers, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, D, dtype=torch.float64)
    (naive,) = torch.autograd.grad((span.rows_at(z).sin() * weights).sum(), z)
    torch.testing.assert_close(span.gradient_at(z, span.rows_at(z).cos() * weights), naive)


def test_a_start_that_nobody_knows_shows_no_span() -> None:
    model = nn.Sequential(nn.Linear(D, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2))
    assert AffineSpan.of(exhume.observe(model), torch.zeros(1)) is None


def test_a_deep_network_gives_samples_away_inside_the_span_and_nothing_confirms_them() -> None:
    """Features moved in training: what is found is near, and held-out weights cannot tell how near."""
    observation, inputs = observed(True)
    found = exhume.reconstruct(observation, method="module-newton", budget_seconds=60)
    assert found.facts["subspace_rank"] == N
    assert float(relative_errors(inputs.double(), found.inputs.double()).median()) < 0.1
    assert max(found.certificate.confidence) < 0.5


def test_a_search_begins_where_rows_of_the_same_kind_lie() -> None:
    """Of any rows, those too that do not vary in some directions: what starts are drawn from, and the way back."""
    dice = torch.Generator().manual_seed(0)
    turn = torch.randn(6, 6, generator=dice, dtype=torch.float64)
    scales = torch.tensor([5.0, 2.0, 1.0, 0.5, 0.0, 0.0], dtype=torch.float64)
    kin = 3 + torch.randn(500, 6, generator=dice, dtype=torch.float64) * scales @ turn
    features = ModuleFeatures(torch.nn.Identity(), 6, 6, torch.float64, kin=kin)
    seen = Observation(features, torch.zeros(1, 6, dtype=torch.float64), Knowledge())
    span = AffineSpan.of(seen, kin)
    assert span is not None
    assert (span.numbers, span.rank) == (6, None)
    anywhere = 10 * torch.randn(9, 6, generator=dice, dtype=torch.float64)
    torch.testing.assert_close(span.rows_at(span.coordinates_of(anywhere)), anywhere)
    starts = span.rows_at(torch.randn(20_000, 6, generator=dice, dtype=torch.float64))
    torch.testing.assert_close(starts.mean(dim=0), kin.mean(dim=0), rtol=0.1, atol=0.3)
    difference = torch.cov(starts.T) - torch.cov(kin.T)
    assert float(difference.norm() / torch.cov(kin.T).norm()) < 0.05
