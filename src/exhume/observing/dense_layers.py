"""Dense layers of a module that read the inputs, or features that training did not change, at both ends of training.

A module is a program, so what a layer reads is tried out: random inputs go through, and a layer that is handed the
inputs themselves reads them. A layer behind others whose weights did not change reads frozen features. What passes a
unit below zero is tried out too: the gradient of the outputs at preactivations below and above zero.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.layer_states import SILENT, LayerStates, changed, with_bias

PROBES = 16


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of a linear layer: what it was handed, what it gave, and which layers with weights came before it.

    `normed` holds the name of a batch norm that was handed what this layer gave."""

    name: str
    layer: nn.Linear
    handed: Float[Tensor, "m c"]
    given: Float[Tensor, "m h"]
    behind: tuple[str, ...]
    normed: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class SeenLayer:
    """A linear layer as a silent-units attack sees it. `why_not`: what keeps the attack from it, if anything does."""

    name: str
    layer: nn.Linear
    reads: str
    leak: float | None
    why_not: str | None


def dense_layers(trained: nn.Module, started: nn.Module, input_shape: tuple[int, ...]) -> tuple[LayerStates, ...]:
    """The layers that a silent-units attack can be made on, those that read the inputs first."""
    modules = dict(started.named_modules())
    found = []
    for seen in seen_layers(trained, input_shape, _unchanged(trained, modules)):
        before = modules[seen.name]
        ends = [with_bias(layer.weight, layer.bias) for layer in (before, seen.layer)]
        if seen.why_not is None and not torch.equal(ends[0], ends[1]):
            bias = seen.layer.bias is not None
            found.append(changed(ends[0], ends[1], bias=bias, name=seen.name, leak=seen.leak or 0.0, reads=seen.reads))
    return tuple(sorted(found, key=lambda layer: layer.reads != "inputs"))


def seen_layers(
    model: nn.Module, input_shape: tuple[int, ...], still: Callable[[str], bool] = lambda name: False
) -> tuple[SeenLayer, ...]:
    """All linear layers that take rows, in the order of their calls. `still`: whether training left a module alone."""
    kind = next(model.parameters())
    stream = torch.Generator().manual_seed(0)
    probes = torch.randn(PROBES, *input_shape, generator=stream).to(kind)
    with torch.enable_grad(), _recorded(model) as calls:
        outputs = model(probes)
    if not isinstance(outputs, Tensor) or not outputs.is_floating_point() or not outputs.requires_grad:
        return ()
    return tuple(_seen(call, outputs, probes, still, last=call.layer is calls[-1].layer) for call in calls)


def _seen(call: _Call, outputs: Tensor, probes: Tensor, still: Callable[[str], bool], last: bool) -> SeenLayer:
    moved = next((name for name in reversed(call.behind) if not still(name)), None)
    reads = "inputs" if _reads_inputs(call, probes) else "frozen features" if call.behind else "changed inputs"
    if reads == "frozen features" and moved is not None:
        reads = "trained features"
    leak = None if last else _leak(outputs, call)
    why_not = None
    if last:
        why_not = "it gives the outputs themselves, with no activation behind it"
    elif reads == "trained features":
        why_not = f"it reads features behind {moved!r} that are not known to be fixed, and not the inputs"
    elif reads == "changed inputs":
        why_not = "it reads something that the model makes of the inputs without any layer"
    elif call.normed:
        why_not = f"batch norm ({call.normed[0]!r}) behind it mixes the samples of a batch"
    elif leak is None:
        why_not = "no gradient of the outputs reaches units that fire"
    elif leak > SILENT:
        why_not = f"its units pass {leak:.0%} of a gradient below zero, so none of them is silent"
    return SeenLayer(call.name, call.layer, reads, leak, why_not)


def _unchanged(trained: nn.Module, started: dict[str, nn.Module]) -> Callable[[str], bool]:
    now = dict(trained.named_modules())

    def still(name: str) -> bool:
        before = started[name].state_dict()
        return all(torch.equal(value, before[key]) for key, value in now[name].state_dict().items())

    return still


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[_Call]]:
    calls: list[_Call] = []
    before: list[str] = []
    hooks = []

    def hook(name: str, layer: nn.Module, handed: tuple[Tensor, ...], given: Tensor) -> None:
        if isinstance(layer, nn.Linear) and handed[0].ndim == 2:
            given.retain_grad() if given.requires_grad else None
            calls.append(_Call(name, layer, handed[0].detach(), given, tuple(before)))
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            for call in calls:
                call.normed.extend([name] if call.given is handed[0] else [])
        before.append(name)

    for name, layer in model.named_modules():
        if next(layer.parameters(recurse=False), None) is not None:
            hooks.append(layer.register_forward_hook(_named(hook, name)))
    grads = [parameter.requires_grad for parameter in model.parameters()]
    modes = {layer: layer.training for layer in model.modules()}
    model.requires_grad_(True).eval()  # random inputs must not move the statistics of a batch norm
    try:
        yield calls
    finally:
        for one in hooks:
            one.remove()
        for parameter, wanted in zip(model.parameters(), grads, strict=True):
            parameter.requires_grad_(wanted)
        for layer, mode in modes.items():
            layer.training = mode


def _named(hook, name: str):  # type: ignore[no-untyped-def]
    return lambda layer, handed, given: hook(name, layer, handed, given)


def _reads_inputs(call: _Call, probes: Tensor) -> bool:
    return call.handed.shape == (len(probes), probes[0].numel()) and torch.equal(call.handed, probes.flatten(1))


def _leak(outputs: Tensor, call: _Call) -> float | None:
    """The size of gradients at preactivations below zero over that above; None where the layer has no say."""
    (gradient,) = torch.autograd.grad(outputs.square().sum(), call.given, retain_graph=True, allow_unused=True)
    if gradient is None or not bool(gradient.any()):
        return None
    below, above = gradient[call.given < 0], gradient[call.given > 0]
    if not len(below) or not len(above) or not bool(above.any()):
        return None
    return float(below.square().mean().sqrt() / above.square().mean().sqrt())
