"""The gradient of a network's output in all its parameters, as a feature map: g(x) = ∂f(x; θ) / ∂θ, for any module.

Training by gradient descent moves the parameters by Σ_i α_i ∂f(x_i), with gradients on the way. If the network is wide
they hardly move, and the change of all parameters is nearly in the span of g at the samples, with g taken at any point
of the way: the feature map of the neural tangent kernel. It has the interface of the features before a head (values,
products forward and backward), so every attack on these works on it as well; each of its coordinates is one parameter.
For networks of two layers, `layered.py` has the same inner products at a fraction of the cost, and several outputs.
"""

import copy
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures
from exhume.networks.attention import differentiable_attention
from exhume.networks.head import PenultimateFeatures, find_head

CHUNK = 8  # gradients are as large as the network: few at a time


def gradient_features(module: nn.Module, input_shape: tuple[int, ...], chunk: int = CHUNK) -> ModuleFeatures:
    """The gradient of the one output of a module, in the order of its named parameters.

    Coordinates that belong to one row of a parameter (the weights of one unit) make a group.
    """
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    buffers = dict(module.named_buffers())
    kind = next(iter(parameters.values()))

    def output(weights: dict[str, Tensor], one: Tensor) -> Tensor:
        found = torch.func.functional_call(module, (weights, buffers), (one.reshape(1, *input_shape),))
        if found.numel() != 1:
            raise UsageError(f"expected a network of one output for its gradient, found {found.numel()}")
        return found.reshape(())

    of_one = torch.func.grad(output)

    def function(inputs: Tensor) -> Tensor:
        weights = {name: value.to(inputs) for name, value in parameters.items()}
        with differentiable_attention():
            found = torch.func.vmap(of_one, in_dims=(None, 0))(weights, inputs)
        return torch.cat([found[name].reshape(len(inputs), -1) for name in weights], dim=1)

    d, p = _size(input_shape), sum(value.numel() for value in parameters.values())
    return ModuleFeatures(function, d, p, kind.dtype, kind.device, groups=_rows(parameters), chunk=chunk)


def flattened(tensors: Mapping[str, Tensor], module: nn.Module) -> Float[Tensor, "1 p"]:
    """Parameters of a state dict as one row, in the order of the features."""
    return torch.cat([tensors[name].reshape(-1) for name, _ in module.named_parameters()])[None]


@torch.no_grad()
def whole_module(network: PenultimateFeatures, head: Float[Tensor, "k p"]) -> nn.Module:
    """A copy of the network with this head, whose last column is its bias if it has one."""
    module = copy.deepcopy(network.model)
    layer = find_head(module, network.head_name)
    layer.weight.copy_(head[:, : layer.in_features])
    if layer.bias is not None:
        layer.bias.copy_(head[:, -1])
    return module


def halfway(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: (value + second[name]) / 2 if value.is_floating_point() else second[name] for name, value in first.items()
    }


def _rows(parameters: Mapping[str, Tensor]) -> Int[Tensor, " p"]:
    groups, first = [], 0
    for value in parameters.values():
        rows = value.shape[0] if value.ndim > 1 else value.numel()
        groups.append(first + torch.arange(rows).repeat_interleave(value.numel() // rows))
        first += rows
    return torch.cat(groups)


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
