"""Layers of a module as a silent-units attack sees them: what they read, what passes their units, what is in the way.

A module is a program, so what a layer reads is tried out: random inputs go through, and a layer that is handed the
inputs themselves reads them. A layer behind others whose weights did not change reads frozen features. What passes a
unit below zero is tried out too: the gradient of the outputs at preactivations below and above zero.

A convolution that reads the inputs is a dense layer on patches. One image has v of them, so it is in reach only where v
is below half the channels and below the size of a patch: otherwise a single image already fills the rank.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.features.module import penultimate_features
from exhume.layer_states import FAINT, LayerStates
from exhume.networks.loading import evaluating
from exhume.picture_layouts import layouts
from exhume.readings import Embeddings, Patches, Reading

PROBES = 16
INPUTS, PATCHES, FEATURES = "inputs", "patches of the inputs", "frozen features"
ORDER = (INPUTS, PATCHES, FEATURES)
"""What attacks can be made on, the clearest first."""


@dataclass(frozen=True, eq=False)
class SeenLayer:
    """`why_not`: what keeps the attack from it, if anything does. `reading`: how inputs become what it reads."""

    name: str
    layer: nn.Linear | nn.Conv2d
    reads: str
    leak: float | None
    why_not: str | None
    reading: Reading | None = None

    def named(self, states: LayerStates) -> LayerStates:
        """States of this layer, with what was seen of it."""
        return replace(states, name=self.name, leak=self.leak or 0.0, reads=self.reads, reading=self.reading)


@dataclass(frozen=True, eq=False, repr=False)
class _Call:
    """One call of a layer: what it was handed, what it gave, and which layers with weights came before it.

    `normed` holds the name of a batch norm that was handed what this layer gave."""

    name: str
    layer: nn.Linear | nn.Conv2d
    handed: Float[Tensor, "m ..."]
    given: Float[Tensor, "m h ..."]
    behind: tuple[str, ...]
    normed: list[str] = field(default_factory=list)


def seen_layers(
    model: nn.Module, input_shape: tuple[int, ...], still: Callable[[str], bool] = lambda name: False
) -> tuple[SeenLayer, ...]:
    """All linear layers that take rows, and all convolutions of images, in the order of their calls.

    `still`: whether training left a module alone."""
    kind = next(model.parameters())
    stream = torch.Generator().manual_seed(0)
    probes = torch.randn(PROBES, *input_shape, generator=stream).to(kind)
    with torch.enable_grad(), _recorded(model) as calls:
        outputs = model(probes)
    if not isinstance(outputs, Tensor) or not outputs.is_floating_point() or not outputs.requires_grad:
        return ()
    found = []
    for call in calls:
        reads, unread = _reads(call, probes, still)
        last = call.layer is calls[-1].layer
        leak = None if last else _leak(outputs, call)
        not_silent = _no_activation(call, leak, last, pictured=reads != FEATURES)
        why_not = not_silent if last else unread or not_silent
        reading = None
        if why_not is None and reads != INPUTS:
            reading = _reading(call, model, input_shape)
            why_not = None if reading is not None else "it is called on something else than one row per input"
        found.append(SeenLayer(call.name, call.layer, reads, leak, why_not, reading))
    return tuple(found)


def _reads(call: _Call, probes: Tensor, still: Callable[[str], bool]) -> tuple[str, str | None]:
    """What a layer reads, and what of that keeps an attack from it."""
    if call.handed.numel() == probes.numel() and torch.equal(call.handed.flatten(1), probes.flatten(1)):
        return (PATCHES, _out_of_reach(call)) if isinstance(call.layer, nn.Conv2d) else (INPUTS, None)
    moved = next((name for name in reversed(call.behind) if not still(name)), None)
    if not call.behind:
        return "changed inputs", "it reads something that the model makes of the inputs without any layer"
    if moved is not None:
        return (
            "trained features",
            f"it reads features behind {moved!r} that are not known to be fixed, and not the inputs",
        )
    if isinstance(call.layer, nn.Conv2d):
        return FEATURES, "it is a convolution that does not read the inputs"
    return FEATURES, None


def _out_of_reach(call: _Call) -> str | None:
    patches = _patches(call)
    if patches is None:
        return "its channels read parts of patches, or patches that are not padded by zeros"
    channels, size = len(call.layer.weight), call.layer.weight[0].numel()
    if patches.pieces >= min(channels / 2, size + 1):
        return (
            f"an image has {patches.pieces} of its patches, which takes more than {2 * patches.pieces} channels and "
            f"patches of as many numbers, and it has {channels} and {size}"
        )
    return None


def _no_activation(call: _Call, leak: float | None, last: bool, pictured: bool) -> str | None:
    """`pictured`: it reads inputs or parts of them, which are told apart without silence where they are pictures."""
    if last:
        return "it gives the outputs themselves, with no activation behind it"
    if call.normed:
        return f"batch norm ({call.normed[0]!r}) behind it mixes the samples of a batch"
    if leak is None:
        return "no gradient of the outputs reaches units that fire"
    if leak > FAINT and not (pictured and layouts(call.layer.weight[0].numel())):
        return f"its units pass {leak:.0%} of a gradient below zero, so none of them is silent"
    return None


def _patches(call: _Call) -> Patches | None:
    if not isinstance(call.layer, nn.Conv2d) or call.handed.ndim != 4:
        return None
    channels, height, width = call.handed.shape[1:]
    return Patches.of(call.layer, (channels, height, width))


def _reading(call: _Call, model: nn.Module, input_shape: tuple[int, ...]) -> Reading | None:
    if isinstance(call.layer, nn.Conv2d):
        return _patches(call)
    try:
        return Embeddings(penultimate_features(model, call.name, input_shape))
    except UsageError:  # called twice, or on something else than one row per input
        return None


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[_Call]]:
    calls: list[_Call] = []
    before: list[str] = []
    hooks = []

    def hook(name: str, layer: nn.Module, handed: tuple[Tensor, ...], given: Tensor) -> None:
        if (isinstance(layer, nn.Linear) and handed[0].ndim == 2) or isinstance(layer, nn.Conv2d):
            given.retain_grad() if given.requires_grad else None
            calls.append(_Call(name, layer, handed[0].detach(), given, tuple(before)))
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            for call in calls:
                call.normed.extend([name] if call.given is handed[0] else [])
        before.append(name)

    for name, layer in model.named_modules():
        if next(layer.parameters(recurse=False), None) is not None:
            hooks.append(layer.register_forward_hook(partial(hook, name)))
    grads = [parameter.requires_grad for parameter in model.parameters()]
    model.requires_grad_(True)
    try:
        with evaluating(model):  # random inputs must not move the statistics of a batch norm
            yield calls
    finally:
        for one in hooks:
            one.remove()
        for parameter, wanted in zip(model.parameters(), grads, strict=True):
            parameter.requires_grad_(wanted)


def _leak(outputs: Tensor, call: _Call) -> float | None:
    """The size of gradients at preactivations below zero over that above; None where the layer has no say."""
    (gradient,) = torch.autograd.grad(outputs.square().sum(), call.given, retain_graph=True, allow_unused=True)
    if gradient is None or not bool(gradient.any()):
        return None
    below, above = gradient[call.given < 0], gradient[call.given > 0]
    if not len(below) or not len(above) or not bool(above.any()):
        return None
    return float(below.square().mean().sqrt() / above.square().mean().sqrt())
