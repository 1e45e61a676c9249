"""The shape that the head's input had before it was flattened: which of its coordinates belong to one channel.

Coordinates of one channel come from the same weights, so a verdict should hold out whole channels; so do coordinates of
one place of an embedding, at every token. exhume's own networks say how their features are laid out; a user's model is
watched while it runs once: whatever flattens channels × height × width (or more axes), or tokens × embedding, into what
the head reads is seen, also where it is a plain call and not a layer. An embedding is known by its layer norm.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from exhume.networks.head import name_of
from exhume.networks.loading import evaluating

_FLATTENING = {"flatten", "reshape", "view"}
_COORDINATE_WISE = {"dropout", "relu", "relu_", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "contiguous"}
CHANNEL_AXES = 3  # of one sample: channels, height, width
FEWEST_CHANNELS = 16  # two are always held out as a whole, and of fewer that would be too many
Layout = tuple[tuple[int, ...], int]
"""The shape of one sample's features, and the axis along which coordinates have weights of their own."""


def feature_layout(model: nn.Module, head: nn.Linear, probe: Tensor) -> Layout | None:
    """None where each coordinate has weights of its own, as far as can be seen, or there are too few channels."""
    shape = flattened_shape(model, head, probe)
    if shape is None or len(shape) >= CHANNEL_AXES:
        return (shape, 0) if shape is not None and shape[0] >= FEWEST_CHANNELS else None
    norms = [layer.normalized_shape for layer in model.modules() if isinstance(layer, nn.LayerNorm)]
    return (shape, 1) if norms and norms[-1] == shape[-1:] else None


def flattened_shape(model: nn.Module, head: nn.Linear, probe: Tensor) -> tuple[int, ...] | None:
    """The shape of one sample's features before they were flattened; None where that is not seen.

    `probe` are at least two inputs in the model's own shape. The model is run once, in evaluation mode.
    """
    watch, seen = _Watch(), list[Tensor]()
    handle = model.get_submodule(name_of(model, head)).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        with torch.no_grad(), evaluating(model), watch:
            model(probe)
    except Exception:
        return None  # training will say, in its own words, what does not fit
    finally:
        handle.remove()
    shape = watch.shape_of(seen[0]) if len(seen) == 1 else None
    return shape[1:] if shape is not None and shape[0] == len(probe) else None


class _Watch(TorchFunctionMode):
    """Remembers the shapes that flattened tensors had before."""

    def __init__(self) -> None:
        super().__init__()
        self._known: list[tuple[Tensor, tuple[int, ...]]] = []  # the tensors too: their ids must not be used again

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = args[0] if args else None
        if isinstance(result, Tensor) and isinstance(given, Tensor) and result.ndim == 2:
            name = getattr(func, "__name__", "")
            if name in _FLATTENING and given.ndim > 2 and result.numel() == given.numel():
                self._known.append((result, tuple(given.shape)))
            elif name in _COORDINATE_WISE or name in _FLATTENING:
                shape = self.shape_of(given)
                if shape is not None and result.shape == given.shape:
                    self._known.append((result, shape))
        return result

    def shape_of(self, tensor: Tensor) -> tuple[int, ...] | None:
        return next((shape for known, shape in reversed(self._known) if known is tensor), None)
