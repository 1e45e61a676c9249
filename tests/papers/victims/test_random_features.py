from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from exhume.activations import ACTIVATIONS
from exhume.attacks.single_layer.span import SpanLoss
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import ExhumeError, UsageError
from exhume.features.rows import HeldRows, hold, write_rows
from exhume.observation import save_observation
from exhume.tensor_header import read_header
from exhume.validation import parse_fields
from exhume_papers.victims.random_features import RandomFeaturesConfig, Victim, draw_rows, train_random_features

D, N, P = 12, 6, 700


def sphere(seed: int = 0, samples: int = N, rule: str = "linear", dtype: str = "float64") -> Dataset:
    return load(DataConfig.parse(name="sphere", samples=samples, dim=D, seed=seed, dtype=dtype, label_rule=rule))


def trained(config: RandomFeaturesConfig, data: Dataset) -> Victim:
    return train_random_features(config, data, draw_rows(config, D))


def dense_features(victim: Victim, inputs: Tensor) -> Tensor:
    """φ(XVᵀ + b) written out."""
    features = victim.observation.ridge
    preactivations = inputs @ features.rows.block(0, features.p).to(inputs.dtype).T
    if features.bias is not None:
        preactivations = preactivations + features.bias
    return features.activation.value(preactivations)


def loss_at_the_truth(victim: Victim, data: Dataset) -> float:
    observation = victim.observation
    return SpanLoss(observation.ridge, observation.weights, data.inputs.dtype).fit(data.inputs).loss


@pytest.mark.parametrize("bias", [0.0, 0.7])
@pytest.mark.parametrize("name", [name for name in ACTIVATIONS.names() if name != "linear"])
def test_min_norm_weights_interpolate_the_labels_and_lie_in_the_span_of_the_features(name: str, bias: float) -> None:
    data = sphere()
    victim = trained(RandomFeaturesConfig(params=P, activation=name, bias=bias), data)
    features = dense_features(victim, data.inputs)
    weights = victim.observation.weights[0]
    torch.testing.assert_close(features @ weights, data.labels, atol=1e-8, rtol=0)
    torch.testing.assert_close(features.T @ victim.coefficients, weights, atol=1e-12, rtol=1e-8)
    torch.testing.assert_close(torch.linalg.pinv(features) @ data.labels, weights, atol=1e-9, rtol=1e-7)
    assert loss_at_the_truth(victim, data) < 1e-10


@pytest.mark.parametrize("fit", [{"fit": "ridge", "ridge": 0.1}, {"fit": "logistic", "steps": 50}])
def test_other_fits_lie_in_the_span_of_the_features_too(fit: dict[str, object]) -> None:
    data = sphere(rule="sign")
    victim = trained(RandomFeaturesConfig.model_validate({"params": P, **fit}), data)
    assert loss_at_the_truth(victim, data) < 1e-10
    assert 1e-7 < victim.training_loss < 0.5
    assert victim.steps == (50 if fit["fit"] == "logistic" else 0)


def test_labels_are_interpolated_where_the_features_are_nearly_parallel() -> None:
    data = sphere(samples=60, dtype="float32")
    victim = trained(RandomFeaturesConfig(params=6000, activation="sigmoid"), data)
    assert victim.training_loss < 1e-10


def test_float32_data_give_float32_weights_that_are_the_rounded_float64_ones() -> None:
    config = RandomFeaturesConfig(params=P)
    exact, rounded = (trained(config, sphere(dtype=dtype)).observation.weights for dtype in ("float64", "float32"))
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, atol=1e-5, rtol=0)


@pytest.mark.parametrize("bias", [0.0, 0.7])
def test_rows_as_a_seed_in_memory_and_in_a_file_give_the_same_weights(tmp_path: Path, bias: float) -> None:
    config, data = RandomFeaturesConfig(params=P, bias=bias), sphere()
    drawn = draw_rows(config, D)
    expected = train_random_features(config, data, drawn).observation.weights
    for rows in (hold(drawn), write_rows(drawn, tmp_path / "v")):
        assert torch.equal(train_random_features(config, data, rows).observation.weights, expected)


def test_the_victims_seed_decides_the_rows_and_the_bias() -> None:
    data = sphere()
    one, again, other = (trained(RandomFeaturesConfig(params=P, bias=1.0, seed=seed), data) for seed in (1, 1, 2))
    assert torch.equal(one.observation.weights, again.observation.weights)
    assert one.observation.ridge.rows != other.observation.ridge.rows
    biases = [victim.observation.ridge.bias for victim in (one, again, other)]
    assert all(bias is not None for bias in biases)
    assert torch.equal(biases[0], biases[1])  # type: ignore[arg-type]
    assert not torch.equal(biases[0], biases[2])  # type: ignore[arg-type]


def test_the_bias_has_the_standard_deviation_asked_for_and_none_is_none() -> None:
    data = sphere()
    bias = trained(RandomFeaturesConfig(params=20_000, bias=0.7), data).observation.ridge.bias
    assert bias is not None
    assert float(bias.std()) == pytest.approx(0.7, rel=0.03)
    assert abs(float(bias.mean())) < 0.02
    assert trained(RandomFeaturesConfig(params=P), data).observation.ridge.bias is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_attacker_is_told_the_number_of_samples_and_their_norm(dtype: str) -> None:
    knowledge = trained(RandomFeaturesConfig(params=P), sphere(dtype=dtype)).observation.knowledge
    assert (knowledge.samples, knowledge.norm) == (N, D**0.5)


def test_a_common_norm_is_told_and_norms_that_differ_are_not() -> None:
    config, data = RandomFeaturesConfig(params=P), sphere()
    tripled = replace(data, inputs=data.inputs * 3)
    assert trained(config, tripled).observation.knowledge.norm == pytest.approx(3 * D**0.5, rel=1e-9)
    for change in (torch.linspace(1, 2, N), torch.tensor([1.001] + [1.0] * (N - 1))):
        stretched = replace(data, inputs=data.inputs * change[:, None].double())
        assert trained(config, stretched).observation.knowledge.norm is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("in_file", [False, True])
def test_the_data_seed_changes_nothing_of_the_saved_observation_but_the_weights(
    tmp_path: Path, dtype: str, in_file: bool
) -> None:
    config = RandomFeaturesConfig(params=P, bias=0.5)
    rows = write_rows(draw_rows(config, D), tmp_path / "v") if in_file else draw_rows(config, D)
    for seed in (1, 2):
        data = sphere(seed, dtype=dtype)
        save_observation(train_random_features(config, data, rows).observation, tmp_path / f"{seed}")
    one, two = (load_file(tmp_path / name) for name in ("1", "2"))
    assert one.keys() == two.keys() == {"weights", "bias"}
    assert torch.equal(one["bias"], two["bias"])
    assert not torch.equal(one["weights"], two["weights"])
    assert read_header(tmp_path / "1").exhume == read_header(tmp_path / "2").exhume


def test_a_saved_observation_holds_no_row_and_no_label_of_the_data(tmp_path: Path) -> None:
    data, config = sphere(samples=8), RandomFeaturesConfig(params=8, bias=0.5)
    victim = trained(config, data)
    save_observation(
        replace(victim.observation, features=replace(victim.observation.ridge, rows=hold(draw_rows(config, D)))),
        tmp_path / "o",
    )
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    secrets = [*data.inputs, data.labels, *data.labels, victim.coefficients, *victim.coefficients]
    for secret in secrets:
        for dtype in (torch.float64, torch.float32):
            assert secret.to(dtype).numpy().tobytes() not in content
    assert victim.observation.weights.numpy().tobytes() in content


def test_features_that_overflow_are_one_line() -> None:
    config = RandomFeaturesConfig(params=P)
    rows = HeldRows(torch.full((P, D), 1e200, dtype=torch.float64))
    with pytest.raises(ExhumeError, match="finite features"):
        train_random_features(config, sphere(), rows)


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="penalty for the ridge fit"):
        trained(RandomFeaturesConfig(params=P, fit="ridge"), sphere())
    with pytest.raises(UsageError, match="labels"):
        trained(RandomFeaturesConfig(params=P, fit="logistic", steps=5), sphere())
    with pytest.raises(UsageError, match="activation"):
        trained(RandomFeaturesConfig(params=P, activation="step"), sphere())
    for fields in ({"params": 0}, {"bias": -1.0}, {"bias": float("inf")}, {"fit": "guess"}, {"steps": 0}, {"depth": 3}):
        with pytest.raises(ValidationError):
            RandomFeaturesConfig.model_validate({"params": P, **fields})


@pytest.mark.parametrize("fit", ["min-norm", "logistic"])
def test_a_ridge_penalty_is_refused_with_another_fit(fit: str) -> None:
    with pytest.raises(UsageError, match="ridge penalty"):
        parse_fields(RandomFeaturesConfig, params=5, fit=fit, ridge=0.1)
