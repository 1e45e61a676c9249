"""Averages of gradients that an optimiser keeps beside the weights, as targets of the silent-units attack.

SGD's `momentum_buffer`, and `exp_avg` of Adam and its kin, are linear averages of gradients: rows of a layer's buffer
are combinations of the layer's inputs, also where the weights themselves have no such form. torch numbers parameters
in the order in which the model lists them.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from exhume.errors import ExhumeError
from exhume.layer_states import LayerStates, averaged, with_bias

BUFFERS = ("momentum_buffer", "exp_avg")


def optimiser_layer(model: nn.Module, state: Mapping[str, Any], name: str) -> LayerStates:
    """The layer of that name, with the average of its gradients in an optimiser's state dict."""
    layer = dict(model.named_modules()).get(name)
    if not isinstance(layer, nn.Linear):
        raise ExhumeError(f"expected a linear layer {name!r} in the model, found {type(layer).__name__}")
    listed = [parameter for group in state["param_groups"] for parameter in group["params"]]
    order = {key: number for (key, _), number in zip(model.named_parameters(), listed, strict=False)}
    weight = _buffer(state, order, f"{name}.weight")
    bias = None if layer.bias is None else _buffer(state, order, f"{name}.bias")
    target = with_bias(weight, bias)
    return averaged(target, with_bias(layer.weight, layer.bias), bias=bias is not None, name=name)


def _buffer(state: Mapping[str, Any], order: Mapping[str, int], key: str) -> Tensor:
    kept = state["state"].get(order.get(key), {})
    for name in BUFFERS:
        if isinstance(kept.get(name), Tensor):
            found: Tensor = kept[name]
            return found
    raise ExhumeError(
        f"expected {' or '.join(BUFFERS)} of {key!r} in the optimiser's state, found {', '.join(kept) or 'nothing'}"
    )
