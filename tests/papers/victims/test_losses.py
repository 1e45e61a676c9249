import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian as hessian_of

from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset, Preparation
from exhume.data.load import load
from exhume.errors import UsageError
from exhume_papers.victims.losses import LOSSES, LossName, loss_named
from exhume_papers.victims.targets import default_outputs, make_targets

N = 5


def classes(count: int) -> Dataset:
    """A data set of which only the classes matter."""
    index = torch.arange(N) % count
    preparation = Preparation(torch.zeros(0), torch.ones(0), torch.ones(N), None, "none", "keep")
    names = tuple(f"class {position}" for position in range(count))
    labels = 2.0 * index - 1 if count == 2 else index.float()
    return Dataset(torch.randn(N, 3), labels, names, index, None, preparation, "")


def outputs_and_targets(name: LossName) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    k = 1 if name == "logistic" else 3
    outputs = torch.randn(N, k, generator=stream, dtype=torch.float64)
    targets = make_targets(classes(2 if k == 1 else 3), name, k).double()
    return outputs, targets


def torch_loss(name: LossName, outputs: Tensor, targets: Tensor) -> Tensor:
    if name == "square":
        return torch.nn.functional.mse_loss(outputs, targets)
    if name == "logistic":
        return torch.nn.functional.soft_margin_loss(outputs, targets)
    return torch.nn.functional.cross_entropy(outputs, targets.argmax(dim=1))


@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_torch_s(name: LossName) -> None:
    outputs, targets = outputs_and_targets(name)
    loss = loss_named(name)
    outputs.requires_grad_()
    expected = torch_loss(name, outputs, targets)
    (gradient,) = torch.autograd.grad(expected, outputs)
    torch.testing.assert_close(loss.value(outputs.detach(), targets), expected.detach())
    torch.testing.assert_close(loss.gradient(outputs.detach(), targets), gradient)


@pytest.mark.parametrize("name", LOSSES)
def test_the_root_of_the_curvature_squares_to_the_second_derivative(name: LossName) -> None:
    outputs, targets = outputs_and_targets(name)
    root = loss_named(name).root
    hessian = hessian_of(lambda flat: torch_loss(name, flat.reshape(outputs.shape), targets), outputs.flatten())
    units = torch.eye(outputs.numel(), dtype=torch.float64).reshape(-1, *outputs.shape)
    columns = torch.stack([root(outputs, root(outputs, unit, True), False).flatten() for unit in units])
    torch.testing.assert_close(columns, hessian)


def test_losses_that_only_approach_zero_do_not_overflow() -> None:
    far = torch.tensor([[1000.0]])
    assert loss_named("logistic").value(far, torch.tensor([[-1.0]])).item() == 1000
    assert loss_named("logistic").value(far, torch.tensor([[1.0]])).item() == 0


def test_targets_are_one_hot_rows_or_a_column_of_labels() -> None:
    assert make_targets(classes(3), "square", 3).tolist() == torch.eye(3)[torch.tensor([0, 1, 2, 0, 1])].tolist()
    assert make_targets(classes(2), "logistic", 1).flatten().tolist() == [-1, 1, -1, 1, -1]
    assert make_targets(classes(2), "square", 2).shape == (N, 2)
    assert [default_outputs(classes(count), "square") for count in (2, 3)] == [1, 3]
    assert default_outputs(classes(2), "cross-entropy") == 2
    assert default_outputs(classes(3), "logistic") == 1


@pytest.mark.parametrize(
    ("data", "loss", "outputs", "said"),
    [
        (classes(3), "logistic", 3, "expected 1 output for the logistic loss, found 3"),
        (classes(3), "logistic", 1, "labels -1 and \\+1"),
        (classes(3), "square", 4, "one output for each of the 3 classes, found 4"),
        (classes(3), "cross-entropy", 1, "one output for each of the 3 classes, found 1"),
        (load(DataConfig(name="sphere", samples=4, dim=3)), "cross-entropy", 2, "at least 2 classes"),
    ],
)
def test_targets_that_do_not_go_with_the_loss_are_one_line(
    data: Dataset, loss: LossName, outputs: int, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        make_targets(data, loss, outputs)


def test_an_unknown_loss_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="square, logistic, cross-entropy; found 'hinge'"):
        loss_named("hinge")
