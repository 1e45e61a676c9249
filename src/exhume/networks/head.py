"""The last layer of a module, and the features that it sees.

The gradient of any loss with respect to a linear head W in f(x) = W φ(x) + b is Σ_i e_i φ(x_i)ᵀ: whatever comes after
the head, its change is a combination of the penultimate features φ(x_i), the head's inputs.
"""

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.networks.attention import differentiable_attention
from exhume.networks.loading import LISTED, check_inputs, evaluating

_Layer = TypeVar("_Layer", bound=nn.Module)


def find_head(model: nn.Module, name: str | None = None, probe: Tensor | None = None) -> nn.Linear:
    """The linear layer of that name; without a name the last one that the model calls on a probe of two inputs, or,
    without a probe or where the model does not take it, the last one that it registered."""
    linear = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    if not linear:
        raise UsageError("expected a model with a linear layer as its head, found none of type torch.nn.Linear")
    if name is None:
        called = [] if probe is None else _calls(model, list(linear.values()), probe)
        return (called or list(linear.values()))[-1]
    if name in linear:
        return linear[name]
    last = list(linear)[-LISTED:]
    others = f"{', '.join(last)}{f' (the last {LISTED} of {len(linear)})' if len(linear) > LISTED else ''}"
    modules = dict(model.named_modules())
    if name in modules:
        raise UsageError(
            f"expected a linear head, found {name!r} of type {type(modules[name]).__name__}; there are {others}"
        )
    raise UsageError(
        f"expected the name of a linear layer, found {name!r}, which the model does not have; there are {others}"
    )


def plain_head(model: nn.Module, name: str | None, probe: Tensor) -> nn.Linear:
    """The same, of which weights and bias are all there is."""
    head = find_head(model, name, probe)
    if not set(head.state_dict()) <= {"weight", "bias"}:
        raise UsageError(f"expected a head with a plain weight and bias, found {', '.join(head.state_dict())}")
    return head


def name_of(model: nn.Module, head: nn.Linear) -> str:
    """The name that a layer has in the model; "" if it is the model itself."""
    names = [name for name, layer in model.named_modules() if layer is head]
    if not names:
        raise UsageError("expected a head that is a layer of the model, found one of another model")
    return names[0]


def layer_in_front(model: nn.Module, head: nn.Linear, probe: Tensor) -> str | None:
    """The name of the module with weights that the model calls last before its head: the head reads what it gives, or
    what an activation makes of it. None where the head comes first."""
    names = {
        layer: name for name, layer in model.named_modules() if next(layer.parameters(recurse=False), None) is not None
    }
    calls = _calls_of(model, list(names), probe)
    place = calls.index(head) if head in calls else 0
    return names[calls[place - 1]] if place else None


def head_tensors(model: nn.Module, head_name: str) -> tuple[str, ...]:
    """The names of the head's own tensors in the state dict of the model: features do not depend on them."""
    head = model.get_submodule(head_name)
    return tuple(f"{head_name}.{name}" if head_name else name for name in head.state_dict())


def with_bias(weight: Float[Tensor, "h ..."], bias: Float[Tensor, " h"] | None) -> Float[Tensor, "h c"]:
    """W̃ = [W, b]: a bias is the weight of an input that is always 1. The kernels of a convolution are flattened."""
    weight = weight.detach().flatten(start_dim=1)
    return weight if bias is None else torch.cat([weight, bias.detach().to(weight)[:, None]], dim=1)


class _Reached(Exception):
    """The forward pass has come to the head: what follows is not needed."""


class PenultimateFeatures(nn.Module):
    """φ(x) (n × h): a copy of the model that stops at its head and gives what the head would have seen.

    A hook takes the head's input, so nothing is assumed of how the model calls its head, and the result belongs to the
    same transform as the call: torch.func's jvp, vjp and vmap work, also through `functional_call`, and attention is
    computed in a way that allows them. `model` itself, called by somebody else, runs to its end.
    """

    def __init__(self, model: nn.Module, head_name: str, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.head_name = head_name
        self.input_shape = input_shape
        """Of one input."""

    @property
    def head(self) -> nn.Linear:
        layer = self.model.get_submodule(self.head_name)
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, inputs: Tensor) -> Tensor:
        seen: list[Tensor] = []

        def take(head: nn.Module, given: tuple[Tensor, ...]) -> None:
            seen.append(given[0])
            raise _Reached

        hook = self.head.register_forward_pre_hook(take)
        try:
            with differentiable_attention():
                self.model(inputs)
        except _Reached:
            return seen[0]
        finally:
            hook.remove()
        raise UsageError(f"expected the model to call its head {self.head_name!r}, found that it does not")


def split_at_head(model: nn.Module, head: nn.Linear, probe: Tensor) -> PenultimateFeatures:
    """The map from inputs to the head's input, tried out on the probe (at least two inputs, in the model's shape)."""
    check_inputs(probe)
    name = name_of(model, head)
    features = PenultimateFeatures(model, name, tuple(probe.shape[1:]))
    with torch.no_grad():
        calls = _count_calls(model, name, probe)
        if calls != 1:
            raise UsageError(f"expected the model to call its head {name!r} once a batch, found {calls} calls")
        seen = features(probe)
    if seen.shape != (len(probe), head.in_features):
        raise UsageError(
            f"expected the head {name!r} to see {len(probe)} x {head.in_features} features of {len(probe)} inputs, "
            f"found shape {list(seen.shape)}"
        )
    return features


def _count_calls(model: nn.Module, head_name: str, probe: Tensor) -> int:
    """How often a whole forward pass calls the head."""
    layer = model.get_submodule(head_name)
    assert isinstance(layer, nn.Linear)
    try:
        return len(_calls_of(model, [layer], probe))
    except Exception as problem:
        reason = " ".join(str(problem).split())
        raise UsageError(
            f"expected a model that takes inputs of shape {list(probe.shape[1:])}, found: "
            f"{type(problem).__name__}: {reason}"
        ) from problem


def _calls(model: nn.Module, layers: Sequence[nn.Linear], probe: Tensor) -> list[nn.Linear]:
    """The same, none where the model fails: why it does is said where its features are made."""
    try:
        return _calls_of(model, layers, probe)
    except Exception:
        return []


def _calls_of(model: nn.Module, layers: Sequence[_Layer], probe: Tensor) -> list[_Layer]:
    """The layers in the order of their calls; counted on the model itself, in evaluation mode."""
    calls: list[_Layer] = []
    handles = [layer.register_forward_pre_hook(lambda called, seen: calls.append(called)) for layer in layers]
    try:
        with torch.no_grad(), evaluating(model):
            model(probe)
    finally:
        for handle in handles:
            handle.remove()
    return calls
