"""Training replayed against torch.optim, and its derivatives against automatic differentiation of a plain loop."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from exhume.attacks.replay.dense_network import DenseNetwork, dense_network
from exhume.attacks.replay.unrolled import Smoothing, Training
from exhume.errors import UsageError
from exhume.recipe import Recipe

N, D, K = 5, 6, 3
RECIPES = [
    Recipe(optimiser="sgd", rate=0.3, steps=4, weight_decay=0.02),
    Recipe(optimiser="sgd", rate=0.1, steps=5, momentum=0.9, batch_size=2, batch_seed=3),
    Recipe(optimiser="sgd", rate=0.1, steps=4, momentum=0.5, loss="square"),
    Recipe(optimiser="adam", rate=0.01, steps=6),
    Recipe(optimiser="adam", rate=0.01, steps=7, weight_decay=0.1, batch_size=3, betas=(0.8, 0.99)),
    Recipe(optimiser="adamw", rate=0.02, steps=5, weight_decay=0.3),
]
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def _module(bias: bool = True) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(D, 8, bias=bias), nn.ReLU(), nn.Linear(8, 7, bias=bias), nn.ReLU(), nn.Linear(7, K, bias=bias)
        ).double()


def _samples() -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(1)
    labels = torch.randint(0, K, (N,), generator=stream)
    inputs = torch.randn(N, D, generator=stream, dtype=torch.float64)
    return inputs, nn.functional.one_hot(labels, K).double()


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([value.detach().reshape(-1) for value in module.parameters()]).clone()


def _training(recipe: Recipe, bias: bool = True) -> Training:
    module = _module(bias)
    return Training(dense_network(module, recipe.loss), recipe, _flat(module), N)


def _by_torch(recipe: Recipe, inputs: Tensor, targets: Tensor) -> Tensor:
    module = _module()
    own = {"momentum": recipe.momentum} if recipe.optimiser == "sgd" else {"betas": recipe.betas, "eps": recipe.eps}
    optimiser = OPTIMISERS[recipe.optimiser](
        module.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay, **own
    )
    stream, made = torch.Generator().manual_seed(recipe.batch_seed), 0
    while made < recipe.steps:
        order = torch.arange(N) if recipe.batch_size is None else torch.randperm(N, generator=stream)
        for batch in order.split(recipe.batch_size or N):
            if made == recipe.steps:
                break
            outputs = module(inputs[batch])
            if recipe.loss == "square":
                loss = nn.functional.mse_loss(outputs, targets[batch])
            else:
                loss = nn.functional.cross_entropy(outputs, targets[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            made += 1
    return _flat(module)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.described)
def test_training_ends_where_torch_ends(recipe: Recipe) -> None:
    inputs, targets = _samples()
    training = _training(recipe)
    path, gradients = training.path(inputs, targets)
    assert len(path) == recipe.steps + 1 == len(gradients) + 1
    torch.testing.assert_close(path[-1], _by_torch(recipe, inputs, targets), rtol=1e-9, atol=1e-10)


def _plain_end(training: Training, smoothing: Smoothing, guide: list[Tensor] | None, x: Tensor, y: Tensor) -> Tensor:
    """The same training as one differentiable function: gradients by autograd, no formula of the module."""
    recipe, network = training.recipe, training.network
    weights, first, second = training.start, torch.zeros_like(training.start), torch.zeros_like(training.start)
    for t, batch in enumerate(training.batches):
        rows = slice(None) if batch is None else batch
        at = weights if guide is None else guide[t]
        at = at if at.requires_grad else at.clone().requires_grad_()
        loss = _plain_loss(network, smoothing, at, x[rows], y[rows])
        (gradient,) = torch.autograd.grad(loss, at, create_graph=True)
        if recipe.optimiser == "adamw":
            weights = weights * (1 - recipe.rate * recipe.weight_decay)
        else:
            gradient = gradient + recipe.weight_decay * weights
        if recipe.optimiser == "sgd":
            first = recipe.momentum * first + gradient
            weights = weights - recipe.rate * first
            continue
        low, high = recipe.betas
        first, second = low * first + (1 - low) * gradient, high * second + (1 - high) * gradient**2
        root = (second / (1 - high ** (t + 1)) + smoothing.blur).sqrt() + recipe.eps
        weights = weights - recipe.rate * first / (1 - low ** (t + 1)) / root
    return weights


def _plain_loss(network: DenseNetwork, smoothing: Smoothing, flat: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    for layer, width in zip(network.layers, (*smoothing.widths, None), strict=True):
        weight, bias = layer.split(flat)
        inputs = inputs @ weight.T + (0 if bias is None else bias)
        if width is not None:
            inputs = nn.functional.softplus(1.7 / width * inputs) * width / 1.7
    if network.loss == "square":
        return ((inputs - targets) ** 2).mean()
    return -(torch.log_softmax(inputs, dim=1) * targets).sum(dim=1).mean()


@pytest.mark.parametrize("guided", [False, True])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.described)
def test_derivatives_are_those_of_automatic_differentiation(recipe: Recipe, guided: bool) -> None:
    inputs, targets = _samples()
    training = _training(recipe)
    guide = training.path(inputs + 0.1, targets)[0] if guided else None
    smoothing = Smoothing((0.3, 0.2), torch.full_like(training.start, 1e-4))
    stream = torch.Generator().manual_seed(2)
    to_x, to_y = (torch.randn(part.shape, generator=stream, dtype=torch.float64) for part in (inputs, targets))
    along = (to_x, to_y - to_y.mean(dim=1, keepdim=True))  # targets are shares of one
    end, pushed = torch.autograd.functional.jvp(
        lambda x, y: _plain_end(training, smoothing, guide, x, y), (inputs, targets), along
    )
    found = training.linearise(inputs, targets, smoothing, guide)
    torch.testing.assert_close(found.end, end, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(training.end(inputs, targets, smoothing, guide), end, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.push(*along), pushed, rtol=1e-7, atol=1e-10)
    cotangent = torch.randn(end.shape, generator=stream, dtype=torch.float64)
    to_inputs, to_targets = found.pull(cotangent)
    product = (to_inputs * along[0]).sum() + (to_targets * along[1]).sum()
    torch.testing.assert_close(product, cotangent @ pushed, rtol=1e-7, atol=1e-10)


def test_less_memory_changes_nothing() -> None:
    inputs, targets = _samples()
    recipe = RECIPES[4]
    whole = _training(recipe)
    small = Training(whole.network, recipe, whole.start, N, memory=whole.bytes_with(recipe.steps) - 1)
    assert small.segment == 3
    assert whole.segment == recipe.steps
    first, second = (one.linearise(inputs, targets, Smoothing.none(one.network)) for one in (whole, small))
    assert torch.equal(first.end, second.end)
    assert torch.equal(first.push(inputs, targets), second.push(inputs, targets))
    for one, other in zip(first.pull(first.end), second.pull(first.end), strict=True):
        assert torch.equal(one, other)


def test_layers_without_bias() -> None:
    training = _training(RECIPES[0], bias=False)
    inputs, targets = _samples()
    found = training.linearise(inputs, targets, Smoothing.none(training.network))
    assert found.push(inputs, None).shape == training.start.shape == (D * 8 + 8 * 7 + 7 * K,)


def test_other_networks_are_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="found Linear Tanh Linear"):
        dense_network(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), "square")
