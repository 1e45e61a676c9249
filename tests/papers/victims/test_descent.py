from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume_papers.networks.resnet import ResNet
from exhume_papers.networks.vit import VisionTransformer
from exhume_papers.victims.descent import ModuleIterates, train_module
from exhume_papers.victims.descent_loop import Surroundings
from exhume_papers.victims.losses import loss_named
from exhume_papers.victims.recipe import DescentRecipe

N, D = 6, 12


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(D, 20), nn.Tanh(), nn.Linear(20, 2)).double()


INPUTS, TARGETS = drawn(N, D), torch.eye(2, dtype=torch.float64)[torch.arange(N) % 2]


@pytest.mark.parametrize(
    "recipe",
    [
        DescentRecipe(step_size=0.1),
        DescentRecipe(step_size=0.1, momentum=0.9, weight_decay=0.1),
        DescentRecipe(method="adam", step_size=0.01),
        DescentRecipe(method="adam", step_size=0.01, weight_decay=0.1),
    ],
)
def test_steps_are_those_of_torch_s_optimisers(recipe: DescentRecipe) -> None:
    model = small()
    recipe = recipe.model_copy(update={"steps": 20})
    trained = train_module(model, INPUTS, TARGETS, "square", recipe)
    optimiser: torch.optim.Optimizer
    if recipe.method == "adam":
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=recipe.weight_decay)
    else:
        decay = recipe.weight_decay
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=recipe.momentum, weight_decay=decay)
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(INPUTS), TARGETS).backward()
        optimiser.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(trained.state[name], value, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("loss", ["square", "cross-entropy"])
@pytest.mark.parametrize(
    "recipe", [DescentRecipe(), DescentRecipe(method="sgd", momentum=0.5), DescentRecipe(method="adam", step_size=0.01)]
)
def test_every_recipe_reaches_its_target_and_leaves_the_given_model_alone(loss: str, recipe: DescentRecipe) -> None:
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = recipe.model_copy(update={"until": 1e-2})
    trained = train_module(model, INPUTS, TARGETS, loss, recipe)  # type: ignore[arg-type]
    assert trained.descent.stopped == "target"
    assert trained.descent.loss <= 1e-2
    assert trained.note is None
    found = float(loss_named(loss).value(trained.model(INPUTS).detach(), TARGETS))
    assert found == pytest.approx(trained.descent.loss)
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value)
        assert torch.equal(trained.initial[name], value)
        assert not torch.equal(trained.state[name], value)


def test_a_resnet_and_a_vision_transformer_are_trained_with_the_measured_step() -> None:
    rows = drawn(3, 192).float()
    targets = torch.tensor([[-1.0], [1.0], [1.0]])
    stream = torch.Generator().manual_seed(0)
    for model in (
        ResNet(8, 4, 1, stream, kernel=6, blocks=2),
        VisionTransformer(8, 4, 12, 1, 3, 1, stream),
    ):
        went = train_module(model, rows, targets, "logistic", DescentRecipe(until=0.05)).descent
        assert went.stopped == "target"
        assert went.curvature is not None
        assert went.step_size == 1 / went.curvature / 2**went.lowered


def test_frozen_parameters_stay_and_only_the_others_move() -> None:
    model = small()
    model.get_parameter("0.weight").requires_grad_(False)
    model.get_parameter("0.bias").requires_grad_(False)
    trained = train_module(model, INPUTS, TARGETS, "square", DescentRecipe(steps=5))
    assert torch.equal(trained.state["0.weight"], trained.initial["0.weight"])
    assert not torch.equal(trained.state["2.weight"], trained.initial["2.weight"])
    with pytest.raises(UsageError, match="none that require a gradient"):
        train_module(model.requires_grad_(False), INPUTS, TARGETS, "square", DescentRecipe())


def test_images_keep_their_shape_for_models_that_want_it() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)).double()
    assert (
        train_module(model, INPUTS, TARGETS, "square", DescentRecipe(steps=2), image_shape=(3, 2, 2)).descent.steps == 2
    )


def test_dropout_is_off_and_batch_norm_is_fixed_and_it_is_said() -> None:
    model = nn.Sequential(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)).double().train()
    trained = train_module(model, INPUTS, TARGETS, "square", DescentRecipe(steps=3))
    assert trained.note is not None
    assert "dropout is switched off in 2 and batch norm uses its running statistics in 1" in trained.note
    assert torch.equal(trained.state["1.running_mean"], trained.initial["1.running_mean"])
    assert model.training
    again = train_module(model, INPUTS, TARGETS, "square", DescentRecipe(steps=3))
    assert torch.equal(again.state["0.weight"], trained.state["0.weight"])


class Unusual(nn.Module):
    def __init__(self, answer: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.answer = answer

    def forward(self, rows: Tensor) -> object:
        return self.answer


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (nn.Linear(D + 1, 2).double(), INPUTS, r"takes inputs of shape \[12\], found: RuntimeError: mat1"),
        (nn.Linear(D, 5).double(), INPUTS, r"expected outputs of shape \[6, 2\] \(samples x outputs\), found \[6, 5\]"),
        (Unusual((1, 2)), INPUTS, "found an object of type tuple"),
        (Unusual(torch.ones(N, 2, dtype=torch.int64)), INPUTS, "outputs in floating point, found int64"),
        (nn.Linear(D, 2), torch.ones(N, D, dtype=torch.uint8), "inputs in floating point, found uint8"),
    ],
)
def test_what_does_not_fit_is_one_line(model: nn.Module, inputs: Tensor, said: str) -> None:
    train = train_module.__wrapped__ if hasattr(train_module, "__wrapped__") else train_module
    with pytest.raises(UsageError, match=said) as problem:
        train(model, inputs, TARGETS, "square", DescentRecipe())
    assert "\n" not in str(problem.value)


class Stubborn(torch.autograd.Function):
    """Has a backward derivative and no forward one."""

    @staticmethod
    def forward(ctx: object, rows: Tensor) -> Tensor:
        return rows.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient


class StubbornModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, 2).double()

    def forward(self, rows: Tensor) -> Tensor:
        return Stubborn.apply(self.layer(rows))


def test_a_model_whose_curvature_cannot_be_measured_needs_a_step() -> None:
    with pytest.raises(UsageError, match=r"whose curvature can be measured, found: .*; give a step size"):
        train_module(StubbornModel(), INPUTS, TARGETS, "square", DescentRecipe())
    assert (
        train_module(StubbornModel(), INPUTS, TARGETS, "square", DescentRecipe(step_size=0.1, steps=2)).descent.steps
        == 2
    )


@pytest.mark.parametrize(
    "recipe",
    [
        DescentRecipe(),
        DescentRecipe(method="sgd", batch_size=2, momentum=0.5),
        DescentRecipe(method="adam", batch_size=4),
    ],
)
def test_resumed_equals_undisturbed(tmp_path: Path, recipe: DescentRecipe) -> None:
    path = tmp_path / "checkpoint.safetensors"
    recipe = recipe.model_copy(update={"steps": 31})
    whole = train_module(small(), INPUTS, TARGETS, "square", recipe)
    rounds = iter(range(100))
    stopped = Surroundings(checkpoint=path, stop=lambda: next(rounds) == 4)
    first = train_module(small(), INPUTS, TARGETS, "square", recipe, around=stopped)
    assert first.descent.stopped == "interrupted"
    second = train_module(small(), INPUTS, TARGETS, "square", recipe, around=Surroundings(checkpoint=path))
    assert second.descent == whole.descent
    assert all(torch.equal(second.state[name], whole.state[name]) for name in whole.state)


def test_parameters_that_the_model_does_not_use_are_left_alone() -> None:
    model = small()
    model.register_parameter("spare", nn.Parameter(torch.ones(3, dtype=torch.float64)))
    iterates = ModuleIterates(model, INPUTS, TARGETS, loss_named("square"), DescentRecipe())
    iterates.differentiate(None)
    iterates.move(0.1)
    assert torch.equal(model.get_parameter("spare"), torch.ones(3, dtype=torch.float64))
