import copy
import math

import pytest
import torch
from torch import Tensor, nn

from exhume.defences.private import PrivateRecipe
from exhume.errors import UsageError
from exhume_papers.victims.private import train_private_module

N, D = 6, 5


def draw(k: int = 1) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    return torch.randn(N, D, generator=stream), torch.randn(N, k, generator=stream)


@pytest.fixture(scope="module", autouse=True)
def _needs_opacus() -> None:
    pytest.importorskip("opacus", reason="an extra: pip install 'exhume[dp]'")


def test_without_noise_and_clipping_it_is_gradient_descent() -> None:
    inputs, targets = draw(2)
    model = nn.Sequential(nn.Linear(D, 7), nn.Tanh(), nn.Linear(7, 2))
    recipe = PrivateRecipe(clip=1e9, noise=0, steps=4, step_size=0.3, momentum=0.5)
    private = train_private_module(model, inputs, targets, "square", recipe)
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.3, momentum=0.5)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.mse_loss(plain(inputs), targets).backward()
        optimizer.step()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(private.model.state_dict()[name], value, atol=1e-5, rtol=1e-5)
        assert torch.equal(private.initial[name], model.state_dict()[name])
    assert private.epsilon == math.inf
    reached = nn.functional.mse_loss(plain(inputs), targets).item()
    assert private.training_loss == pytest.approx(reached, rel=1e-4)


def test_dropout_is_off_and_the_trained_module_is_an_ordinary_one() -> None:
    inputs, targets = draw()
    model = nn.Sequential(nn.Linear(D, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    recipe = PrivateRecipe(clip=1.0, noise=0.1, steps=3)
    one, again = (train_private_module(model, inputs, targets, "square", recipe) for _ in range(2))
    assert one.note is not None
    assert "dropout" in one.note
    assert torch.equal(one.model(inputs), again.model(inputs))
    assert not any(layer.training for layer in one.model.modules())
    assert set(one.model.state_dict()) == set(model.state_dict())
    for parameter in one.model.parameters():
        assert parameter.grad is None
        assert not hasattr(parameter, "grad_sample")
        assert not hasattr(parameter, "summed_grad")
    copy.deepcopy(one.model)(inputs).sum().backward()


def test_images_and_frozen_layers_work() -> None:
    inputs, targets = torch.randn(4, 16, generator=torch.Generator().manual_seed(1)), torch.ones(4, 1)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    model[0].requires_grad_(False)
    recipe = PrivateRecipe(clip=1.0, noise=0.1, steps=3)
    done = train_private_module(model, inputs, targets, "square", recipe, (1, 4, 4))
    assert torch.equal(done.model.state_dict()["0.weight"], model.state_dict()["0.weight"])
    assert not torch.equal(done.model.state_dict()["3.weight"], model.state_dict()["3.weight"])


def test_what_cannot_be_trained_is_one_line() -> None:
    inputs, targets = draw()
    recipe = PrivateRecipe(clip=1.0, noise=1.0, steps=1)
    with pytest.raises(UsageError, match="sample by sample") as caught:
        train_private_module(nn.Sequential(nn.Linear(D, 1), nn.BatchNorm1d(1)), inputs, targets, "square", recipe)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="none that require a gradient"):
        train_private_module(nn.Linear(D, 1).requires_grad_(False), inputs, targets, "square", recipe)
