import pytest
import torch

from exhume.activations import activation
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.metrics.floor import floor_of
from exhume.observation import Knowledge, Observation

FEATURES = RidgeFeatures(DrawnRows(0, 400, 10), activation("relu"))


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_combination_of_features_is_explained_and_noise_on_it_is_not() -> None:
    inputs = normal(3, 10, seed=1)
    weights = normal(2, 3, seed=2) @ FEATURES(inputs)
    assert floor_of(Observation(FEATURES, weights, Knowledge()), inputs) < 1e-25
    noise = normal(2, 400, seed=3) * 0.1
    found = floor_of(Observation(FEATURES, weights + noise, Knowledge()), inputs)
    seen = FEATURES(inputs)
    left = noise - noise @ torch.linalg.pinv(seen) @ seen
    assert found == pytest.approx(float(left.square().sum() / (weights + noise).square().sum()), rel=1e-9)


def test_blocks_do_not_change_it_and_repeated_samples_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = normal(3, 10, seed=1)
    observation = Observation(FEATURES, normal(2, 400, seed=4), Knowledge())
    whole = floor_of(observation, inputs)
    assert 0.9 < whole < 1
    monkeypatch.setattr("exhume.features.rows.BLOCK_BYTES", 1)
    assert floor_of(observation, inputs) == pytest.approx(whole, rel=1e-12)
    assert floor_of(observation, torch.cat([inputs, inputs])) == pytest.approx(whole, rel=1e-9)


def test_weights_of_zero_are_explained() -> None:
    assert floor_of(Observation(FEATURES, torch.zeros(1, 400), Knowledge()), normal(2, 10, seed=1)) == 0
