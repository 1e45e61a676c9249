from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exhume.activations import activation
from exhume.attacks.single_layer.span import SpanLoss
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows, MappedRows, hold
from exhume.observation import FEATURES_FILE, load_observation, save_observation
from exhume_papers.victims.descent_loop import Surroundings
from exhume_papers.victims.losses import loss_named
from exhume_papers.victims.recipe import DescentRecipe, TrainingStopped
from exhume_papers.victims.two_layer import TwoLayerConfig, TwoLayerVictim, draw_head, train_two_layer

N, D, H = 6, 20, 600


def data(dtype: str = "float64", classes: int = 3) -> Dataset:
    sphere = load(DataConfig.parse(name="sphere", samples=N, dim=D, dtype=dtype, label_rule="sign"))
    names = tuple(f"class {position}" for position in range(classes))
    return replace(sphere, class_names=names, class_index=torch.arange(N) % classes) if classes else sphere


def outputs_of(victim: TwoLayerVictim, inputs: torch.Tensor) -> torch.Tensor:
    return victim.observation.ridge(inputs) @ victim.head.T


def loss_at_the_truth(victim: TwoLayerVictim, inputs: torch.Tensor) -> float:
    observation = victim.observation
    return SpanLoss(observation.ridge, observation.weights, inputs.dtype).fit(inputs).loss


def test_the_square_loss_fits_one_hot_targets_and_the_change_of_the_head_is_near_the_span() -> None:
    given = data()
    victim = train_two_layer(TwoLayerConfig(width=H), given)
    assert victim.training_loss <= 1e-9
    assert victim.descent.stopped == "target"
    one_hot = torch.eye(3, dtype=torch.float64)[given.class_index]
    torch.testing.assert_close(outputs_of(victim, given.inputs), one_hot, atol=5e-4, rtol=0)
    assert victim.observation.weights.shape == (3, H)
    torch.testing.assert_close(victim.observation.weights, victim.head - victim.initial_head)
    assert loss_at_the_truth(victim, given.inputs) < 1e-2
    assert victim.observation.knowledge.samples == N
    assert victim.observation.knowledge.norm == D**0.5


def test_wider_networks_drift_less_and_features_halfway_fit_better() -> None:
    given = data()
    floors = []
    for width in (300, 6000):
        victim = train_two_layer(TwoLayerConfig(width=width), given)
        floors.append(loss_at_the_truth(victim, given.inputs))
    assert floors[1] < floors[0] / 5
    assert victim.moved is not None
    halfway = RidgeFeatures(hold(victim.moved.midpoint(), dtype=torch.float64), victim.observation.ridge.activation)
    at_halfway = SpanLoss(halfway, victim.observation.weights, torch.float64).fit(given.inputs).loss
    assert at_halfway < floors[1] / 3


@pytest.mark.parametrize("loss", ["logistic", "cross-entropy"])
def test_classification_losses_reach_their_target(loss: str) -> None:
    given = data()
    victim = train_two_layer(TwoLayerConfig.parse(width=H, loss=loss, activation="gelu"), given)
    assert victim.training_loss <= 1e-3
    outputs = outputs_of(victim, given.inputs)
    if loss == "logistic":
        assert torch.equal(outputs[:, 0].sign(), given.labels)
    else:
        assert torch.equal(outputs.argmax(dim=1), given.class_index)


def test_the_first_layer_moves_in_the_span_of_the_data_only_and_its_start_is_a_seed() -> None:
    given = data()
    victim = train_two_layer(TwoLayerConfig(width=H), given)
    change = victim.observation.ridge.rows.block(0, H) - victim.initial_rows.block(0, H).double()
    outside = change - change @ torch.linalg.pinv(given.inputs) @ given.inputs
    assert float(change.norm()) > 0.01
    assert float(outside.norm()) < 1e-12 * float(change.norm()) * H


@pytest.mark.parametrize(("decay", "scale"), [(0.0, 1.0), (1e-2, 1.0), (0.0, 0.3)])
def test_a_frozen_first_layer_stays_and_the_head_is_in_the_span_of_its_features(decay: float, scale: float) -> None:
    given = data()
    recipe = DescentRecipe(weight_decay=decay, steps=300, until=0.0, step_size=1e-3)
    victim = train_two_layer(TwoLayerConfig(width=H, freeze=True, recipe=recipe, first_scale=scale), given)
    assert not victim.observation.ridge.trained
    assert loss_at_the_truth(victim, given.inputs) < 1e-20, "exactly, because nothing drifted"
    features = RidgeFeatures(victim.initial_rows, activation("relu"))(scale * given.inputs)
    head, one_hot = victim.initial_head.clone(), torch.eye(3, dtype=torch.float64)[given.class_index]
    head.requires_grad_()
    for _ in range(300):  # the same by autograd
        loss = loss_named("square").value(features @ head.T, one_hot)
        (slope,) = torch.autograd.grad(loss, head)
        head = (head - 1e-3 * (slope + decay * head)).detach().requires_grad_()
    torch.testing.assert_close(victim.head, head.detach())


def test_a_frozen_first_layer_is_refused_where_it_makes_no_sense() -> None:
    for wrong in ({"knows_first_layer": True}, {"features_at": "midpoint"}, {"recipe": DescentRecipe(method="adam")}):
        with pytest.raises(UsageError, match="frozen"):
            TwoLayerConfig.parse(width=5, freeze=True, **wrong)


def test_weight_decay_needs_the_decayed_start() -> None:
    given = data()
    victim = train_two_layer(TwoLayerConfig(width=H, recipe=DescentRecipe(weight_decay=0.1, steps=400)), given)
    assert victim.moved is not None
    assert 0 < victim.moved.scale < 0.9
    torch.testing.assert_close(victim.observation.weights, victim.head - victim.moved.scale * victim.initial_head)
    plain = SpanLoss(victim.observation.ridge, victim.head - victim.initial_head, torch.float64).fit(given.inputs).loss
    assert loss_at_the_truth(victim, given.inputs) < plain / 20


def test_a_zero_head_starts_at_zero_and_a_drawn_one_has_variance_one_over_h() -> None:
    config = TwoLayerConfig(width=4000)
    head = draw_head(config, 5, torch.float32)
    assert head.std().item() == pytest.approx(4000**-0.5, rel=0.02)
    assert torch.equal(draw_head(config, 5, torch.float64), head.double())
    assert not draw_head(config.model_copy(update={"zero_head": True}), 5, torch.float32).any()
    victim = train_two_layer(TwoLayerConfig(width=H, zero_head=True), data())
    assert torch.equal(victim.observation.weights, victim.head)


def test_adam_trains_all_weights_and_leaves_the_span() -> None:
    given = data()
    config = TwoLayerConfig(width=H, recipe=DescentRecipe(method="adam"))
    victim = train_two_layer(config, given)
    assert victim.training_loss <= 1e-9
    assert victim.moved is None
    assert loss_at_the_truth(victim, given.inputs) > 0.05
    plain = train_two_layer(TwoLayerConfig(width=H), given)
    assert torch.equal(plain.initial_head, victim.initial_head)


def test_single_precision_ends_at_the_same_network_as_double_precision() -> None:
    recipe = DescentRecipe(step_size=0.02, steps=100, until=0)
    single, double = (
        train_two_layer(TwoLayerConfig(width=H, recipe=recipe), data(name)) for name in ("float32", "float64")
    )
    assert single.observation.weights.dtype == torch.float32
    torch.testing.assert_close(single.head.double(), double.head, atol=1e-5, rtol=1e-4)


def test_the_observation_is_held_or_written_and_never_holds_the_data(tmp_path: Path) -> None:
    given = data("float32")
    held = train_two_layer(TwoLayerConfig(width=H), given)
    written = train_two_layer(TwoLayerConfig(width=H), given, tmp_path / FEATURES_FILE)
    assert isinstance(held.observation.ridge.rows, HeldRows)
    assert isinstance(written.observation.ridge.rows, MappedRows)
    save_observation(written.observation, tmp_path / "observation.safetensors")
    loaded = load_observation(tmp_path / "observation.safetensors")
    torch.testing.assert_close(loaded.ridge.rows.block(0, H), held.observation.ridge.rows.block(0, H))
    assert torch.equal(loaded.weights, held.observation.weights)


@pytest.mark.parametrize("recipe", [DescentRecipe(), DescentRecipe(method="sgd", momentum=0.5, weight_decay=0.01)])
def test_resumed_equals_undisturbed(tmp_path: Path, recipe: DescentRecipe) -> None:
    config = TwoLayerConfig(width=H, recipe=recipe.model_copy(update={"steps": 40}))
    path = tmp_path / "checkpoint.safetensors"
    whole = train_two_layer(config, data())
    rounds = iter(range(100))
    stopped = Surroundings(checkpoint=path, stop=lambda: next(rounds) == 7)
    with pytest.raises(TrainingStopped):
        train_two_layer(config, data(), around=stopped)
    resumed = train_two_layer(config, data(), around=Surroundings(checkpoint=path))
    assert resumed.descent == whole.descent
    assert torch.equal(resumed.head, whole.head)
    assert torch.equal(resumed.observation.ridge.rows.block(0, H), whole.observation.ridge.rows.block(0, H))


def test_bad_requests_are_one_line() -> None:
    with pytest.raises(UsageError, match="width to be greater than or equal to 1, found 0"):
        TwoLayerConfig.parse(width=0)
    with pytest.raises(UsageError, match="expected an activation out of"):
        train_two_layer(TwoLayerConfig(width=5, activation="step"), data())
    with pytest.raises(UsageError, match="one output for each of the 3 classes, found 4"):
        train_two_layer(TwoLayerConfig(width=5, outputs=4), data())
