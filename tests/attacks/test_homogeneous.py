import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.activations import activation
from exhume.attacks.foundation.homogeneous import Homogeneous, in_homogeneous_coordinates, tells_norms
from exhume.attacks.foundation.parametrisation import Subspace
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.metrics.errors import relative_errors
from exhume.observation import Knowledge, Observation, load_observation, save_observation

D, N, P = 8, 4, 500


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def samples() -> Tensor:
    """Raw data: norms from 1 to 8, and far from centred."""
    return normal(N, D, seed=5) * torch.tensor([0.4, 1.0, 2.0, 3.0])[:, None] + 0.5


def observed(inputs: Tensor, norm: float | None = None, name: str = "relu") -> Observation:
    """Weights over frozen features with a bias, and the bias of the head."""
    features = RidgeFeatures(HeldRows(normal(P, D, seed=1)), activation(name), normal(P, seed=2))
    coefficients = normal(len(inputs), 1, seed=3) + 2
    weights = coefficients.T @ features(inputs)
    knowledge = Knowledge(norm=norm)
    return Observation(features, weights, knowledge, output_bias=coefficients.sum(dim=0))


def test_features_at_any_scale_of_the_extended_input_are_those_of_the_layer_with_its_bias() -> None:
    observation, inputs = observed(samples()), samples()
    extended = in_homogeneous_coordinates(observation)
    at = 0.3 * torch.cat([inputs, torch.ones(N, 1).double()], dim=1)
    seen = extended.ridge(at) / 0.3
    torch.testing.assert_close(seen[:, 0], torch.ones(N, dtype=torch.float64))
    torch.testing.assert_close(seen[:, 1:], observation.ridge(inputs))
    assert extended.weights.shape == (1, P + 1)


@pytest.mark.parametrize("inner", [None, Subspace.spanned_by(torch.eye(D + 1, dtype=torch.float64))])
def test_lifting_undoes_lowering_at_any_scale(inner: Subspace | None) -> None:
    coordinates = Homogeneous(D, inner)
    torch.testing.assert_close(coordinates.lift(-2.5 * coordinates.lower(samples())), samples())


def test_an_input_at_infinity_stays_finite() -> None:
    assert torch.isfinite(Homogeneous(2).lift(torch.tensor([[1.0, 2.0, 0.0]]))).all()


@pytest.mark.parametrize(
    ("norm", "name", "biased", "told"),
    [
        (None, "relu", True, True),
        (3.0, "relu", True, False),  # somebody knows the norm
        (None, "relu", False, False),  # nothing tells it
        (None, "gelu", True, False),  # the norm is no factor of the features
    ],
)
def test_norms_are_told_by_a_bias_under_a_homogeneous_activation(
    norm: float | None, name: str, biased: bool, told: bool
) -> None:
    observation = observed(samples(), norm, name)
    if not biased:
        observation = replace(observation, features=replace(observation.ridge, bias=None))
    assert tells_norms(observation) is told


def test_raw_data_come_back_with_their_norms_and_signs() -> None:
    found = exhume.reconstruct(observed(samples()), seed=0, budget_seconds=60)
    assert float(relative_errors(samples(), found.inputs.double()).max()) < 1e-3
    assert len(found.inputs) == N


def test_a_network_of_plain_pytorch_gives_its_inputs_away_with_their_norms_through_both_layers() -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randn(5, 12) * torch.rand(5, 1) * 3, torch.arange(5) % 3
    model = nn.Sequential(nn.Linear(12, 800), nn.ReLU(), nn.Linear(800, 3))
    before = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    observation = exhume.observe(model, initial=before)
    assert observation.initial_bias is not None
    assert observation.output_bias is not None
    found = exhume.reconstruct(observation, method="subspace", budget_seconds=60)
    errors = relative_errors(inputs.double(), found.inputs.double())
    assert found.facts["subspace_rank"] == 5
    assert float(errors.max()) < 0.1


def test_biases_are_kept_in_the_file(tmp_path: Path) -> None:
    observation = replace(observed(samples()), initial_bias=normal(P, seed=9))
    save_observation(observation, tmp_path / "observation.safetensors")
    again = load_observation(tmp_path / "observation.safetensors")
    for name in ("initial_bias", "output_bias"):
        kept = getattr(again, name)
        assert torch.equal(kept, getattr(observation, name))


def test_biases_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ExhumeError, match="expected 1 finite numbers as bias of the head"):
        replace(observed(samples()), output_bias=torch.tensor([torch.nan]))


@pytest.mark.parametrize("name", ["gelu", "softplus"])
def test_norms_are_unknowns_where_the_activation_tells_them(name: str) -> None:
    inputs = samples() / samples().norm(dim=1).max() * 3
    found = exhume.reconstruct(observed(inputs, name=name), seed=0, budget_seconds=60)
    assert float(relative_errors(inputs, found.inputs.double()).max()) < 0.01
