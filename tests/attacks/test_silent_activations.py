"""What the observer makes of a dense layer under each activation: what passes below zero, or why not."""

import copy

import pytest
import torch
from torch import nn

from exhume.layer_states import FAINT
from exhume.observing.dense_layers import dense_layers
from exhume.observing.known_start import KnownStart
from exhume.observing.seen_layers import seen_layers


def network(*behind: nn.Module) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(30, 200), *behind, nn.Linear(200, 3))


def offered(model: nn.Sequential) -> dict[str, float]:
    """The leak of each layer that is offered after some training."""
    started = copy.deepcopy(model)
    made = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(8, 30, generator=torch.Generator().manual_seed(1))
    model(inputs).square().sum().backward()
    made.step()
    return {layer.name: layer.leak for layer in dense_layers(model, KnownStart(started, frozenset()), (30,))}


@pytest.mark.parametrize(
    ("activation", "leak"),
    [
        (nn.ReLU(), 0.0),
        (nn.ReLU6(), 0.0),
        (nn.LeakyReLU(), 0.01),
    ],
)
def test_units_that_are_silent_or_nearly_so_are_offered_with_their_leak(activation: nn.Module, leak: float) -> None:
    found = offered(network(activation))
    assert set(found) == {"0"}
    assert found["0"] == pytest.approx(leak, rel=0.15)


@pytest.mark.parametrize(
    ("activation", "passes"),
    [
        (nn.LeakyReLU(0.2), 0.2),
        (nn.PReLU(), 0.25),
        (nn.GELU(), 0.29),
        (nn.SiLU(), 0.40),
        (nn.Mish(), 0.40),
        (nn.Hardswish(), 0.50),
        (nn.Softplus(), 0.62),
        (nn.ELU(), 0.66),
        (nn.SELU(), 1.17),
        (nn.Tanh(), 1.0),
        (nn.Sigmoid(), 1.0),
        (nn.Hardtanh(), 1.0),
        (nn.Hardsigmoid(), 1.0),
        (nn.Identity(), 1.0),
    ],
)
def test_units_that_pass_gradients_below_zero_are_not_offered_and_the_reason_is_told(
    activation: nn.Module, passes: float
) -> None:
    """Hardtanh is silent below -1 and above 1, which is another pattern than the attack looks for."""
    model = network(activation)
    seen = seen_layers(model, (30,))[0]
    assert seen.leak == pytest.approx(passes, rel=0.1)
    assert seen.leak is not None
    assert seen.leak > FAINT
    assert seen.why_not == f"its units pass {seen.leak:.0%} of a gradient below zero, so none of them is silent"
    assert offered(model) == {}


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_between_a_layer_and_its_activation_is_not_offered(training: bool) -> None:
    """Fresh statistics change nothing, and the layer would look like any other."""
    model = network(nn.BatchNorm1d(200), nn.ReLU()).train(training)
    before = copy.deepcopy(model.state_dict())
    seen = seen_layers(model, (30,))[0]
    assert seen.leak == 0
    assert seen.why_not == "batch norm ('1') behind it mixes the samples of a batch"
    assert offered(copy.deepcopy(model)) == {}
    assert model.training is training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_batch_norm_behind_the_activation_does_no_harm_to_the_layer() -> None:
    assert set(offered(network(nn.ReLU(), nn.BatchNorm1d(200)))) == {"0"}


def test_layer_norm_before_the_activation_leaks_through_the_other_units() -> None:
    """How much depends on what the head asks for: no number to rely on, but never silence."""
    seen = seen_layers(network(nn.LayerNorm(200), nn.ReLU()), (30,))[0]
    assert seen.leak is not None
    assert seen.leak > 0.1


def test_the_output_layer_and_layers_on_trained_features_are_named_with_the_reason() -> None:
    model = network(nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
    _, hidden, head = seen_layers(model, (30,))
    assert hidden.reads == "trained features"
    assert hidden.why_not == "it reads features behind '0' that are not known to be fixed, and not the inputs"
    assert head.why_not == "it gives the outputs themselves, with no activation behind it"
