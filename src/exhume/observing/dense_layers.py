"""Layers of a module that read the inputs, or features that training did not change, at both ends of training.

A module is a program, so what a layer reads is tried out: random inputs go through, and a layer that is handed the
inputs themselves reads them. A layer behind others whose weights did not change reads frozen features. What passes a
unit below zero is tried out too: the gradient of the outputs at preactivations below and above zero.

A convolution that reads the inputs is a dense layer on patches. One image has v of them, so it is offered only where v
is below half the channels and below the size of a patch: otherwise a single image already fills the rank.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.features.module import penultimate_features
from exhume.layer_states import SILENT, LayerStates, changed, with_bias
from exhume.readings import Embeddings, Patches, Reading

PROBES = 16
INPUTS, PATCHES, FEATURES = "inputs", "patches of the inputs", "frozen features"
_ORDER = (INPUTS, PATCHES, FEATURES)


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of a layer: what it was handed, what it gave, and which layers with weights came before it."""

    name: str
    layer: nn.Linear | nn.Conv2d
    handed: Float[Tensor, "m ..."]
    given: Float[Tensor, "m h ..."]
    behind: tuple[str, ...]


def dense_layers(trained: nn.Module, started: nn.Module, input_shape: tuple[int, ...]) -> tuple[LayerStates, ...]:
    """The layers that a silent-units attack can be made on, those that read the inputs first."""
    kind = next(trained.parameters())
    stream = torch.Generator().manual_seed(0)
    probes = torch.randn(PROBES, *input_shape, generator=stream).to(kind)
    with torch.enable_grad(), _recorded(trained) as calls:
        outputs = trained(probes)
    if not isinstance(outputs, Tensor) or not outputs.is_floating_point() or not outputs.requires_grad:
        return ()
    modules = dict(started.named_modules())
    found = []
    for call in calls:
        reads = _reads(call, probes, trained, modules)
        leak = None if reads is None else _leak(outputs, call)
        if leak is None or leak > SILENT or reads is None or call.layer is calls[-1].layer:
            continue
        before = modules[call.name]
        ends = [with_bias(layer.weight, layer.bias) for layer in (before, call.layer)]
        if not torch.equal(ends[0], ends[1]):
            bias = call.layer.bias is not None
            reading = _reading(call, reads, trained, input_shape)
            if reads == INPUTS or reading is not None:
                found.append(
                    changed(ends[0], ends[1], bias=bias, name=call.name, leak=leak, reads=reads, reading=reading)
                )
    return tuple(sorted(found, key=lambda layer: _ORDER.index(layer.reads)))


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[_Call]]:
    calls: list[_Call] = []
    before: list[str] = []
    hooks = []

    def hook(name: str, layer: nn.Module, handed: tuple[Tensor, ...], given: Tensor) -> None:
        if (isinstance(layer, nn.Linear) and handed[0].ndim == 2) or isinstance(layer, nn.Conv2d):
            given.retain_grad() if given.requires_grad else None
            calls.append(_Call(name, layer, handed[0].detach(), given, tuple(before)))
        before.append(name)

    for name, layer in model.named_modules():
        if next(layer.parameters(recurse=False), None) is not None:
            hooks.append(layer.register_forward_hook(_named(hook, name)))
    grads = [parameter.requires_grad for parameter in model.parameters()]
    model.requires_grad_(True)
    try:
        yield calls
    finally:
        for one in hooks:
            one.remove()
        for parameter, wanted in zip(model.parameters(), grads, strict=True):
            parameter.requires_grad_(wanted)


def _named(hook, name: str):  # type: ignore[no-untyped-def]
    return lambda layer, handed, given: hook(name, layer, handed, given)


def _reads(call: _Call, probes: Tensor, trained: nn.Module, started: dict[str, nn.Module]) -> str | None:
    """What a layer reads, if training did not change it."""
    first = call.handed.numel() == probes.numel() and torch.equal(call.handed.flatten(1), probes.flatten(1))
    if isinstance(call.layer, nn.Conv2d):
        return PATCHES if first and call.handed.ndim == 4 else None
    if first:
        return INPUTS
    now = dict(trained.named_modules())
    for name in call.behind:
        own, before = now[name].state_dict(), started[name].state_dict()
        if any(not torch.equal(value, before[key]) for key, value in own.items()):
            return None
    return FEATURES if call.behind else None


def _reading(call: _Call, reads: str, trained: nn.Module, input_shape: tuple[int, ...]) -> Reading | None:
    """How inputs become what the layer reads; None for the inputs themselves, and for a convolution out of reach."""
    if isinstance(call.layer, nn.Conv2d):
        channels, height, width = call.handed.shape[1:]
        patches = Patches.of(call.layer, (channels, height, width))
        if patches is None or patches.pieces >= min(call.layer.out_channels / 2, call.layer.weight[0].numel() + 1):
            return None
        return patches
    if reads == INPUTS:
        return None
    try:
        return Embeddings(penultimate_features(trained, call.name, input_shape))
    except UsageError:  # called twice, or on something else than one row per input
        return None


def _leak(outputs: Tensor, call: _Call) -> float | None:
    """The size of gradients at preactivations below zero over that above; None where the layer has no say."""
    (gradient,) = torch.autograd.grad(outputs.square().sum(), call.given, retain_graph=True, allow_unused=True)
    if gradient is None or not bool(gradient.any()):
        return None
    below, above = gradient[call.given < 0], gradient[call.given > 0]
    if not len(below) or not len(above) or not bool(above.any()):
        return None
    return float(below.square().mean().sqrt() / above.square().mean().sqrt())
