"""Inner products of gradients against the gradients themselves."""

import itertools

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.errors import UsageError
from exhume.features.layered import LayeredNetwork

M, D, H, K = 3, 5, 7, 2


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(*widths: int, name: str = "gelu") -> LayeredNetwork:
    sizes = (D, *widths, K)
    weights = tuple(draw(out, into, seed=place) for place, (into, out) in enumerate(itertools.pairwise(sizes)))
    return LayeredNetwork.measured(weights, activation(name), norm=D**0.5)


def explicit(net: LayeredNetwork, rows: Tensor) -> list[list[Tensor]]:
    """The gradient of each output of each row in each layer, by automatic differentiation."""
    found = []
    for row in rows:
        for output in range(net.outputs):
            weights = [matrix.clone().requires_grad_() for matrix in net.weights]
            signal = row
            for layer, matrix in enumerate(weights[:-1]):
                reached = matrix @ signal
                if net.sharpness is None:
                    signal = net.activation.value(reached)
                else:
                    rate = net.sharpness / net.sizes[layer]
                    signal = torch.nn.functional.softplus(reached * rate, threshold=60) / rate
            found.append(list(torch.autograd.grad((weights[-1] @ signal)[output], weights)))
    return found


@pytest.mark.parametrize("widths", [(H,), (H, 4)])
@pytest.mark.parametrize("sharpness", [None, 3.0])
def test_inner_products_are_those_of_the_gradients(widths: tuple[int, ...], sharpness: float | None) -> None:
    net = network(*widths, name="gelu" if sharpness is None else "relu").at(sharpness)
    rows, units = draw(M, D, seed=9), torch.tensor([0, 2, 5])
    gradients, named = net.gradients(rows), explicit(net, rows)
    layers = range(len(net.weights))
    flat = torch.stack([torch.cat([part.reshape(-1) for part in each]) for each in named])
    torch.testing.assert_close(gradients.gram(layers), flat @ flat.T)
    targets = [draw(*matrix.shape, seed=20 + place) for place, matrix in enumerate(net.weights)]
    target = torch.cat([part.reshape(-1) for part in targets])
    torch.testing.assert_close(gradients.products(targets), flat @ target)
    first = torch.stack([each[0][units].reshape(-1) for each in named])
    torch.testing.assert_close(gradients.gram([0], units), first @ first.T)
    nothing = [None] * (len(targets) - 1)
    torch.testing.assert_close(gradients.products([targets[0], *nothing], units), first @ targets[0][units].reshape(-1))


def test_directions_combine_outputs() -> None:
    net, rows = network(H), draw(M, D, seed=9)
    directions = draw(M, 1, K, seed=3)
    combined = torch.einsum("mqk,mkh->mqh", directions, net.gradients(rows).backward[0])
    torch.testing.assert_close(net.gradients(rows, directions).backward[0], combined)


def test_what_moves_the_first_layer_is_the_combined_error_along_the_row() -> None:
    net, rows, coefficients = network(H), draw(M, D, seed=9), draw(M, K, seed=4)
    named = explicit(net, rows)
    whole = sum(coefficients.reshape(-1)[place] * each[0] for place, each in enumerate(named))
    torch.testing.assert_close(net.gradients(rows).combined(coefficients, None).T @ rows, whole)


def test_a_steep_network_is_the_relu_network() -> None:
    net, rows = network(H, name="relu"), draw(M, D, seed=9)
    torch.testing.assert_close(net.at(1e9).gradients(rows).gram([0, 1]), net.gradients(rows).gram([0, 1]))


def test_sharpness_is_in_units_of_the_usual_preactivation() -> None:
    """So that a network whose first layer is ten times larger is as smooth."""
    net, rows = network(H, name="relu"), draw(M, D, seed=9)
    larger = LayeredNetwork.measured((10 * net.weights[0], net.weights[1]), net.activation, norm=D**0.5)
    torch.testing.assert_close(larger.at(2.0).gradients(rows).backward[0], net.at(2.0).gradients(rows).backward[0])


def test_sharpness_is_for_relu_only() -> None:
    with pytest.raises(UsageError, match="relu only"):
        network(H).at(2.0)


def test_a_network_in_a_subspace_is_the_network_on_it() -> None:
    net = network(H)
    basis, _ = torch.linalg.qr(draw(D, 3, seed=5))
    coordinates = draw(M, 3, seed=6)
    inside, whole = net.seen_through(basis).gradients(coordinates), net.gradients(coordinates @ basis.T)
    torch.testing.assert_close(inside.outputs, whole.outputs)
    torch.testing.assert_close(inside.gram([0, 1]), whole.gram([0, 1]))
