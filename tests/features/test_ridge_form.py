import pytest
import torch
from torch import nn

from exhume.activations import ACTIVATIONS
from exhume.features.module import penultimate_features
from exhume.features.ridge_form import as_ridge

MODULES = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "sigmoid": nn.Sigmoid, "softplus": nn.Softplus}


def _model(activation: nn.Module, bias: bool) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 30, bias=bias), activation, nn.Linear(30, 2))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_a_hidden_layer_is_recognised_whatever_its_activation_and_bias(name: str, bias: bool) -> None:
    model = _model(MODULES[name](), bias)
    plain = penultimate_features(model, "3", (3, 2, 2))
    form = as_ridge(plain.networks[0])
    assert form is not None
    assert not form.normed
    ridge = form.features
    assert ridge.activation is ACTIVATIONS.find(name)
    rows = torch.randn(5, 12)
    assert torch.allclose(ridge(rows), plain(rows), atol=1e-5)
    assert (ridge.bias is None) == (not bias)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_batch_norm_after_the_layer_is_a_part_of_it(bias: bool, affine: bool) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(30, affine=affine)
    model = nn.Sequential(nn.Linear(12, 30, bias=bias), norm, nn.ReLU(), nn.Linear(30, 2))
    for _ in range(5):
        model(2 + 3 * torch.randn(50, 12))  # the statistics that evaluation uses
    if affine:
        with torch.no_grad():
            norm.weight.mul_(-1.7)
            norm.bias.add_(0.3)
    plain = penultimate_features(model, "3", (12,))
    form = as_ridge(plain.networks[0])
    assert form is not None
    assert form.normed
    ridge = form.features
    assert ridge.activation is ACTIVATIONS.find("relu")
    rows = torch.randn(5, 12)
    assert torch.allclose(ridge(rows), plain(rows), atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        nn.Sequential(nn.Linear(12, 30), nn.LeakyReLU(0.2)),
        nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.LayerNorm(30)),
        nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 30), nn.ReLU()),
        nn.Sequential(nn.Linear(12, 30), nn.GELU(approximate="tanh")),
        nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 30), nn.ReLU()),
    ],
)
def test_other_forms_are_not_taken_for_it(body: nn.Module) -> None:
    model = nn.Sequential(body, nn.Linear(30, 1))
    assert as_ridge(penultimate_features(model, "1", (12,)).networks[0]) is None
