"""The fast iteration against plain training of a module with autograd and torch.optim."""

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian as hessian_of

from exhume.activations import activation
from exhume.features.rows import DrawnRows, hold
from exhume_papers.networks.two_layer import TwoLayer
from exhume_papers.victims.descent import ModuleIterates
from exhume_papers.victims.losses import LOSSES, LossName, loss_named
from exhume_papers.victims.moved_rows import MovedRows
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.span_iterates import SpanIterates

N, D, H = 6, 9, 40
ROWS = DrawnRows(seed=5, p=H, d=D)


def problem(name: LossName) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and the initial head."""
    stream = torch.Generator().manual_seed(1)
    k = 1 if name == "logistic" else 3
    inputs = 2 * torch.randn(N, D, generator=stream, dtype=torch.float64)
    index = torch.arange(N) % 3
    targets = torch.nn.functional.one_hot(index).double() if k == 3 else (index % 2 * 2.0 - 1)[:, None].double()
    return inputs, targets, torch.randn(k, H, generator=stream, dtype=torch.float64) / H**0.5


def torch_value(name: LossName, outputs: Tensor, targets: Tensor) -> Tensor:
    if name == "square":
        return torch.nn.functional.mse_loss(outputs, targets)
    if name == "logistic":
        return torch.nn.functional.soft_margin_loss(outputs, targets)
    return torch.nn.functional.cross_entropy(outputs, targets)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("batches", [False, True])
def test_the_iterates_are_those_of_plain_training(name: LossName, momentum: float, decay: float, batches: bool) -> None:
    inputs, targets, head = problem(name)
    phi = activation("gelu")
    recipe = DescentRecipe(method="sgd", momentum=momentum, weight_decay=decay)
    fast = SpanIterates(ROWS, head, phi, inputs, targets, loss_named(name), recipe)
    plain = TwoLayer(hold(ROWS, dtype=torch.float64).values, head, phi.value)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.02, momentum=momentum, weight_decay=decay)
    for step in range(25):
        batch = torch.tensor([step % N, (step + 2) % N]) if batches else None
        fast.differentiate(batch)
        fast.move(0.02)
        chosen = slice(None) if batch is None else batch
        optimiser.zero_grad()
        torch_value(name, plain(inputs[chosen]), targets[chosen]).backward()
        optimiser.step()
    moved = MovedRows(ROWS, fast.scale, fast.coefficients, inputs)
    torch.testing.assert_close(moved.block(0, H), plain.first.weight.detach(), atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(fast.head, plain.head.weight.detach(), atol=1e-12, rtol=1e-10)
    assert fast.loss() == pytest.approx(float(torch_value(name, plain(inputs).detach(), targets)), rel=1e-10)
    assert float((fast.head - head).norm()) > 1e-3


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("batch", [None, torch.tensor([4, 1])])
def test_the_curvature_is_the_largest_eigenvalue_of_the_gauss_newton_matrix(
    name: LossName, batch: Tensor | None
) -> None:
    inputs, targets, head = problem(name)
    phi = activation("relu")
    fast = SpanIterates(ROWS, head, phi, inputs, targets, loss_named(name), DescentRecipe())
    first = hold(ROWS, dtype=torch.float64).values
    chosen = inputs if batch is None else inputs[batch]

    def outputs_of(weights: Tensor) -> Tensor:
        features = torch.relu(chosen @ weights[: H * D].reshape(H, D).T)
        return (features @ weights[H * D :].reshape(head.shape).T).flatten()

    weights = torch.cat([first.flatten(), head.flatten()])
    jacobian = torch.func.jacrev(outputs_of)(weights)
    outputs = outputs_of(weights).reshape(len(chosen), -1)
    wanted = targets if batch is None else targets[batch]
    hessian = hessian_of(lambda flat: torch_value(name, flat.reshape(outputs.shape), wanted), outputs.flatten())
    values = torch.linalg.eigvals(jacobian @ jacobian.T @ hessian).real
    assert fast.curvature(batch) == pytest.approx(float(values.max()), rel=2e-2)
    module = ModuleIterates(TwoLayer(first, head), inputs, targets, loss_named(name), DescentRecipe())
    assert module.curvature(batch) == pytest.approx(float(values.max()), rel=2e-2)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_restored_state_goes_on_bit_for_bit(momentum: float) -> None:
    inputs, targets, head = problem("square")
    recipe = DescentRecipe(momentum=momentum, weight_decay=0.1)
    fast = SpanIterates(ROWS, head, activation("relu"), inputs, targets, loss_named("square"), recipe)
    ends = []
    fast.differentiate(None)
    fast.move(0.01)
    middle = {name: value.clone() for name, value in fast.state().items()}
    for _ in range(2):
        fast.restore(middle)
        for _ in range(5):
            fast.differentiate(None)
            fast.move(0.01)
        ends.append({name: value.clone() for name, value in fast.state().items()})
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert not torch.equal(ends[0]["head"], middle["head"])
