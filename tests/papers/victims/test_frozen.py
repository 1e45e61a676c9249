"""Heads trained alone on layers that do not move."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import UsageError
from exhume.metrics.floor import floor_of
from exhume_papers.victims.descent import train_module
from exhume_papers.victims.frozen import freeze_body, is_frozen, train_head
from exhume_papers.victims.network import train_network
from exhume_papers.victims.network_plans import ResNetConfig
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig

RECIPE = DescentRecipe(steps=60, until=1e-9, step_size=0.05)


def model(after: nn.Module | None = None, bias: bool = True) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = nn.Linear(30, 2, bias=bias)
        layers = [nn.Linear(9, 30), nn.Tanh(), nn.Dropout(0.3), head, *([] if after is None else [after])]
        net = nn.Sequential(*layers).double()
    freeze_body(net, head)
    return net


def problem() -> tuple[Tensor, Tensor]:
    inputs = torch.randn(6, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return inputs, torch.eye(2, dtype=torch.float64)[torch.arange(6) % 2]


def faces(dtype: str = "float32") -> Dataset:
    data = load(DataConfig.parse(name="faces", samples=4, side=5, dtype=dtype))
    return replace(data, class_names=("a", "b"), class_index=torch.arange(4) % 2)


def test_only_the_head_may_move_after_freezing() -> None:
    net = model()
    head = net[3]
    assert isinstance(head, nn.Linear)
    assert is_frozen(net, head)
    net[0].weight.requires_grad_(True)
    assert not is_frozen(net, head)


def test_a_head_trained_on_its_features_takes_the_steps_of_the_whole_network() -> None:
    inputs, targets = problem()
    whole = train_module(model(), inputs, targets, "square", RECIPE, (9,))
    alone = train_head(model(), "3", inputs, targets, "square", RECIPE, (9,))
    assert alone.descent.steps == whole.descent.steps == 60
    assert alone.note == whole.note
    assert alone.note is not None
    assert alone.state.keys() == whole.state.keys()
    for name, tensor in whole.state.items():
        assert torch.allclose(alone.state[name], tensor, atol=1e-10), name
        assert torch.equal(alone.initial[name], whole.initial[name])
    assert torch.allclose(alone.model(inputs), whole.model(inputs), atol=1e-9)


def test_what_follows_the_head_is_trained_through() -> None:
    inputs, targets = problem()
    whole = train_module(model(nn.Softplus()), inputs, targets, "square", RECIPE, (9,))
    alone = train_head(model(nn.Softplus()), "3", inputs, targets, "square", RECIPE, (9,))
    assert all(torch.equal(alone.state[name], tensor) for name, tensor in whole.state.items())


@pytest.mark.parametrize("bias", [True, False])
def test_the_closed_form_is_where_gradient_descent_goes(bias: bool) -> None:
    inputs, targets = problem()
    closed = DescentRecipe(method="closed-form")
    exact = train_head(model(bias=bias), "3", inputs, targets, "square", closed, (9,))
    slow = train_head(model(bias=bias), "3", inputs, targets, "square", DescentRecipe(until=1e-22), (9,))
    assert exact.descent.loss < 1e-24
    assert exact.scale == 1.0
    for name, tensor in slow.state.items():
        assert torch.allclose(exact.state[name], tensor, atol=1e-8), name


def test_the_closed_form_with_weight_decay_has_no_gradient_left_and_nothing_of_the_start() -> None:
    inputs, targets = problem()
    recipe = DescentRecipe(method="closed-form", weight_decay=0.03)
    net = model()
    found = train_head(net, "3", inputs, targets, "square", recipe, (9,))
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.get_parameter("3.weight").mul_(-4)
    assert torch.allclose(
        train_head(other, "3", inputs, targets, "square", recipe, (9,)).state["3.weight"], found.state["3.weight"]
    )
    assert found.scale == 0.0
    head = found.model.get_submodule("3")
    assert isinstance(head, nn.Linear)
    head.requires_grad_(True)
    loss = (found.model(inputs) - targets).square().mean()
    loss = loss + 0.015 * (head.weight.square().sum() + head.bias.square().sum())
    gradients = torch.autograd.grad(loss, [head.weight, head.bias])
    assert max(float(gradient.abs().max()) for gradient in gradients) < 1e-12


def test_the_change_of_a_frozen_networks_head_is_in_the_span_of_its_features() -> None:
    data = faces("float64")
    moves = ResNetConfig(channels=3, kernel=6, blocks=1, recipe=DescentRecipe(steps=100))
    frozen = train_network(moves.model_copy(update={"freeze": True}), data)
    moving = train_network(moves, data)
    assert floor_of(frozen.observation, data.inputs) < 1e-18 < floor_of(moving.observation, data.inputs)
    head = frozen.observation.published_head
    assert head is not None
    outputs = frozen.observation.features(data.inputs) @ head.T
    targets = torch.eye(2, dtype=torch.float64)[data.class_index] if len(head) > 1 else data.labels[:, None]
    assert float((outputs - targets).square().mean()) == pytest.approx(frozen.descent.loss, rel=1e-6)


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="frozen body and the square loss"):
        ResNetConfig.parse(channels=3, recipe=DescentRecipe(method="closed-form"))
    with pytest.raises(UsageError, match="frozen body and the square loss"):
        ResNetConfig.parse(channels=3, freeze=True, loss="cross-entropy", recipe=DescentRecipe(method="closed-form"))
    with pytest.raises(UsageError, match="no momentum, batch size or step size"):
        DescentRecipe.parse(method="closed-form", momentum=0.9)
    with pytest.raises(UsageError, match="gd or sgd without privacy for a two-layer network with a frozen first"):
        TwoLayerConfig.parse(width=4, freeze=True, recipe=DescentRecipe(method="closed-form"))
