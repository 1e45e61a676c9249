import pytest
import torch
from span_check import SpanCheck, check_span, span_of
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume_papers.networks.resnet import ResNet
from exhume_papers.networks.two_layer import TwoLayer
from exhume_papers.victims.descent import train_module
from exhume_papers.victims.recipe import DescentRecipe

N, D, H = 5, 20, 300


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def checked(recipe: DescentRecipe, model: nn.Module | None = None) -> SpanCheck:
    inputs, targets = drawn(N, D), torch.eye(N, dtype=torch.float64)
    model = model or TwoLayer(drawn(H, D, seed=1) / D**0.5, drawn(N, H, seed=2) / H**0.5)
    trained = train_module(model, inputs, targets, "square", recipe)
    return check_span(trained.model, trained.initial, inputs)


def test_a_matrix_inside_the_span_is_inside_and_one_across_it_is_outside() -> None:
    rows, start = drawn(3, 10), drawn(4, 10, seed=1)
    inside = span_of(start + drawn(4, 3, seed=2) @ rows, start, rows)
    assert inside.outside < 1e-25
    assert inside.scale == pytest.approx(1)
    assert inside.largest_angle < 1e-5
    assert (inside.rank, inside.dimension) == (3, 10)
    across = drawn(4, 10, seed=3)
    across -= across @ torch.linalg.pinv(rows) @ rows
    outside = span_of(start + across, start, rows)
    assert outside.outside == pytest.approx(1)
    assert outside.largest_angle == pytest.approx(90)


def test_a_decayed_start_is_seen_through() -> None:
    rows, start = drawn(3, 10), drawn(4, 10, seed=1)
    found = span_of(0.7 * start + drawn(4, 3, seed=2) @ rows, start, rows)
    assert found.outside > 0.01
    assert found.outside_rescaled < 1e-25
    assert found.scale == pytest.approx(0.7)


def test_a_span_that_is_everything_says_nothing_about_the_start() -> None:
    found = span_of(drawn(4, 3), drawn(4, 3, seed=1), drawn(8, 3, seed=2))
    assert (found.scale, found.rank, found.dimension) == (1.0, 3, 3)


@pytest.mark.parametrize(
    "recipe", [DescentRecipe(), DescentRecipe(method="sgd", batch_size=2), DescentRecipe(momentum=0.8)]
)
def test_gradient_descent_keeps_the_first_layer_in_the_span_and_the_head_up_to_drift(recipe: DescentRecipe) -> None:
    check = checked(recipe)
    assert check.first.outside < 1e-20
    assert check.first.largest_angle < 1e-4
    assert check.head.outside < 0.05


def test_weight_decay_is_undone_by_the_best_multiple_of_the_start() -> None:
    check = checked(DescentRecipe(weight_decay=0.02, steps=300))
    assert check.first.outside > 0.1
    assert check.first.outside_rescaled < 1e-20
    assert check.head.outside_rescaled < 0.05 < check.head.outside


def test_adam_leaves_the_span() -> None:
    check = checked(DescentRecipe(method="adam", step_size=1e-3))
    assert check.first.outside > 0.05
    assert check.first.largest_angle > 5
    assert check.head.outside > 0.1


def test_biases_are_weights_of_a_constant_input() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(D, H), nn.Tanh(), nn.Linear(H, N)).double()
    check = checked(DescentRecipe(), model)
    assert check.first.outside < 1e-20
    assert check.first.dimension == D + 1
    assert check.head.outside < 0.05


def test_a_convolution_moves_in_the_span_of_patches() -> None:
    inputs, targets = drawn(2, 192), torch.tensor([[-1.0], [1.0]]).double()
    model = ResNet(8, 6, 1, torch.Generator().manual_seed(0), kernel=8, padding=0, blocks=1).double()
    trained = train_module(model, inputs, targets, "square", DescentRecipe(steps=50))
    check = check_span(trained.model, trained.initial, inputs)
    assert (check.first.rank, check.first.dimension) == (2, 192)
    assert check.first.outside < 1e-20


def test_a_first_layer_that_does_not_exist_lists_those_that_do() -> None:
    model = TwoLayer(drawn(H, D), drawn(N, H))
    with pytest.raises(UsageError, match="first layer out of first, head, found 'embed'"):
        check_span(model, model.state_dict(), drawn(N, D), first_name="embed")
