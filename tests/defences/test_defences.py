from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from exhume.attacks.single_layer.span import SpanLoss
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.defences.kinds import parse_defences, publish
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.selected_rows import SelectedRows
from exhume.observation import Observation, load_observation, save_observation
from exhume_papers.victims.random_features import RandomFeaturesConfig, Victim, draw_rows, train_random_features
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

D, N, P = 8, 5, 240


def sphere() -> Dataset:
    return load(DataConfig.parse(name="sphere", samples=N, dim=D, dtype="float64"))


def trained(bias: float = 0.0) -> Victim:
    config = RandomFeaturesConfig(params=P, bias=bias)
    return train_random_features(config, sphere(), draw_rows(config, D))


def defended(text: str, victim: Victim | None = None, seed: int = 0) -> Observation:
    victim = victim or trained()
    return publish(victim.observation, parse_defences(text, seed=seed), inputs=sphere().inputs)


def kept_by(seen: Observation) -> Tensor:
    assert isinstance(seen.features, RidgeFeatures)
    assert isinstance(seen.features.rows, SelectedRows)
    return seen.features.rows.index


def loss_at_the_truth(seen: Observation) -> float:
    assert isinstance(seen.features, RidgeFeatures)
    return SpanLoss(seen.features, seen.weights, torch.float64).fit(sphere().inputs).loss


def training_loss(seen: Observation) -> float:
    data = sphere()
    return float((seen.features(data.inputs) @ seen.weights[0] - data.labels).square().mean())


@pytest.mark.parametrize(
    "text", ["fp16", "bf16", "int8", "int8-row", "prune50", "obs12.5", "noise0.01", "noise1e-05", "prune50+int8"]
)
def test_a_defence_can_be_found_again_under_its_name(text: str) -> None:
    found = parse_defences(text)
    assert "+".join(defence.short for defence in found) == text
    assert found == parse_defences(f" {text.replace('+', ' + ')} ")


def test_no_defence_is_none() -> None:
    seen = trained().observation
    for text in ("", "none"):
        assert publish(seen, parse_defences(text)) is seen


@pytest.mark.parametrize(
    "text", ["int4", "prune", "prune-5", "prune100", "obs150", "noise", "noise-1", "50", "int8+", "INT8", "prune 50"]
)
def test_what_is_no_defence_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^expected .* found ") as caught:
        parse_defences(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("text", ["prune50", "obs50", "prune75+obs50", "obs50+prune50"])
def test_weights_that_survive_pruning_are_exact_equations(text: str, bias: float) -> None:
    seen = defended(text, trained(bias))
    assert seen.features.p == (P // 2 if "+" not in text else P // 8 if text.startswith("prune") else P // 4)
    assert len(kept_by(seen)) == seen.features.p
    assert loss_at_the_truth(seen) < 1e-18


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_a_pruned_observation_is_saved_and_loaded(tmp_path: Path, bias: float) -> None:
    seen, inputs = defended("obs50", trained(bias)), sphere().inputs
    save_observation(seen, tmp_path / "observation.safetensors")
    again = load_observation(tmp_path / "observation.safetensors")
    assert torch.equal(again.weights, seen.weights)
    torch.testing.assert_close(again.features(inputs), seen.features(inputs), atol=1e-6, rtol=1e-6)


def test_magnitude_pruning_keeps_the_largest_weights_as_they_are() -> None:
    victim = trained()
    seen, weights = defended("prune75", victim), victim.observation.weights[0]
    kept = kept_by(seen)
    assert torch.equal(seen.weights[0], weights[kept])
    gone = torch.ones(P, dtype=torch.bool)
    gone[kept] = False
    assert float(weights[kept].abs().min()) >= float(weights[gone].abs().max())


def test_the_surgeon_keeps_the_fit_that_magnitude_pruning_loses() -> None:
    assert training_loss(defended("obs75")) < 1e-12
    assert training_loss(defended("prune75")) > 1e-3
    assert training_loss(defended("obs99")) > 1e-3  # 3 weights for 5 labels


def test_the_surgeon_takes_the_penalty_of_a_ridge_fit_into_account() -> None:
    config = RandomFeaturesConfig(params=P, fit="ridge", ridge=5.0)
    data = sphere()
    victim = train_random_features(config, data, draw_rows(config, D))
    seen = publish(victim.observation, parse_defences("obs50", ridge=5.0), inputs=data.inputs)
    left = seen.features(data.inputs)
    refitted = left.T @ torch.linalg.solve(left @ left.T + N * 5.0 * torch.eye(N).double(), data.labels)
    torch.testing.assert_close(seen.weights[0], refitted, atol=1e-9, rtol=1e-7)


def test_the_surgeon_needs_the_training_inputs() -> None:
    with pytest.raises(UsageError, match="training inputs for obs50"):
        publish(trained().observation, parse_defences("obs50"))


def test_noise_has_the_size_asked_for_and_follows_its_seed() -> None:
    config = RandomFeaturesConfig(params=20_000)
    victim = train_random_features(config, sphere(), draw_rows(config, D))
    weights = victim.observation.weights
    one, again, other = (defended("noise0.1", victim, seed).weights for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    size = float((one - weights).square().mean().sqrt() / weights.square().mean().sqrt())
    assert size == pytest.approx(0.1, rel=0.03)
    assert loss_at_the_truth(defended("noise0.1", victim)) == pytest.approx(0.01, rel=0.1)


def test_defences_are_applied_from_left_to_right() -> None:
    seen = trained().observation
    both = publish(seen, parse_defences("prune50+int8"))
    torch.testing.assert_close(
        both.weights, publish(publish(seen, parse_defences("prune50")), parse_defences("int8")).weights
    )
    assert both.features.p == P // 2
    assert len(torch.unique(both.weights)) < 255


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_head_of_a_network_is_defended_and_not_its_change(outputs: int) -> None:
    data = load(DataConfig.parse(name="sphere", samples=N, dim=D))
    data = Dataset(
        **{
            **data.__dict__,
            "class_names": tuple("abc"[:outputs]),
            "class_index": torch.arange(N) % outputs,
            "labels": data.labels.sign(),
        }
    )
    victim = train_two_layer(TwoLayerConfig(width=60, outputs=outputs), data)
    start = victim.initial_head
    rounded = publish(victim.observation, parse_defences("int8"), initial=start)
    steps = (rounded.weights + start) / (victim.head.abs().max() / 127)
    torch.testing.assert_close(steps, steps.round(), atol=1e-3, rtol=0)
    for text in ("prune50", "obs50"):
        seen = publish(victim.observation, parse_defences(text), inputs=data.inputs, initial=start)
        kept = kept_by(seen)
        outputs_after = seen.features(data.inputs) @ (seen.weights + start[:, kept]).T
        outputs_before = victim.observation.features(data.inputs) @ victim.head.T
        same = torch.allclose(outputs_after, outputs_before, atol=1e-3)
        assert same == (text == "obs50")


def test_the_surgeon_needs_the_features_that_the_head_was_trained_on() -> None:
    seen = trained().observation
    halfway = replace(seen, knowledge=replace(seen.knowledge, initial_body=True))
    with pytest.raises(UsageError, match=r"expected features at the trained weights for obs50.*prune50"):
        publish(halfway, parse_defences("obs50"), inputs=sphere().inputs)
    assert publish(halfway, parse_defences("prune50"), inputs=sphere().inputs).features.p == P // 2
