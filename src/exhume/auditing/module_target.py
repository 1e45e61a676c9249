"""A module and its weights as a target: what is observed of it, and what the page says of its layers."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.attacks.foundation.spectrum import decompose, rounding
from exhume.auditing.layers import facts_of_module
from exhume.auditing.target import AuditTarget, what_the_head_holds
from exhume.layer_states import LayerStates
from exhume.networks.head import PenultimateFeatures, find_head, layer_in_front
from exhume.observing.beside import Beside
from exhume.observing.dense_layers import in_order, resting_layers, unchanged
from exhume.observing.of_module import SeenModule, Start, look_at
from exhume.observing.seen_layers import seen_layers
from exhume.recipe import Recipe

AT_REST = (
    "The weights are taken to rest under L2 in the loss, as the recipe says: the head and the first layer are attacked "
    "as they are, without their start."
)
BLOCK = 256  # inputs that go through a network at a time


def target_of_module(
    model: nn.Module,
    *,
    head: str | None = None,
    input_shape: tuple[int, ...],
    initial: Start = None,
    norm: float | None = None,
    image_shape: tuple[int, int, int] | None = None,
    beside: Beside | None = None,
    training: Recipe | None = None,
    stationary: bool = False,
) -> AuditTarget:
    """The head of a module and the features that it reads. The module itself is left as it is.

    `beside` is what a checkpoint keeps beside the weights: further states of its layers. `training`: the recipe.
    `stationary`: L2 in the loss has brought the weights to rest, so that they are attacked themselves.
    """
    seen = look_at(model, input_shape, head, initial, norm, image_shape=image_shape, beside=beside)
    if stationary:
        seen = _at_rest(seen, look_at(model, input_shape, head, "zero", norm, image_shape=image_shape), input_shape)
    name, observation, trained = seen.head_name, replace(seen.observation, recipe=training), seen.trained
    layer, kind = find_head(trained, name), next(trained.parameters())
    moved = _known_to_have_moved(seen)

    def remade(change: Callable[[Tensor], Tensor]) -> AuditTarget:
        other = copy.deepcopy(trained)
        own = find_head(other, name)
        with torch.no_grad():
            for key, weights in other.named_parameters():
                if key in moved and weights is not own.weight and weights is not own.bias:
                    weights.copy_(change(weights.detach()))
        again = partial(target_of_module, other, head=name, input_shape=input_shape, initial=initial)
        return again(norm=norm, image_shape=image_shape, beside=beside, training=training, stationary=stationary)

    outside = layer.bias is not None and not seen.published.is_network
    return AuditTarget(
        observation=observation,
        features=seen.published,
        head_name=name or type(model).__name__,
        head=seen.head,
        initial_head=seen.initial_head,
        output_bias=layer.bias.detach().clone() if outside else None,
        layers=facts_of_module(
            trained, name, None if isinstance(initial, str) else initial, what_the_head_holds(observation)
        ),
        notes=seen.notes,
        drift=seen.drift,
        drift_of=None if seen.started is None else partial(_drift_of, seen, input_shape),
        no_silence=None if observation.layers else _no_silence(seen, input_shape),
        in_front=layer_in_front(trained, layer, torch.zeros(2, *input_shape).to(kind)),
        remade=remade,
    )


def _at_rest(seen: SeenModule, alone: SeenModule, input_shape: tuple[int, ...]) -> SeenModule:
    """The head and the first layers as they are; `alone` is the module without any start. What is known of other states
    of the layers follows."""
    layers = in_order([*resting_layers(seen.trained, input_shape), *seen.observation.layers])
    resting = (layer for layer in layers if layer.source == "stationary" and layer.reads == "inputs")
    subspace = next(map(_span, resting), None)
    observation = replace(alone.observation, layers=layers, ends=seen.observation.ends, subspace=subspace)
    return replace(alone, observation=observation, start=seen.start, notes=(*seen.notes, AT_REST))


def _span(layer: LayerStates) -> Float[Tensor, "d r"] | None:
    """Of the inputs, as far as weights at rest show it; None where they show all dimensions."""
    weights = layer.target[:, : layer.d].double()
    shown = decompose(weights, rounding(layer.target))
    return shown.directions.to(layer.target) if shown.clear else None


def _known_to_have_moved(seen: SeenModule) -> set[str]:
    """Names of parameters. Those of a frozen extractor are public, whatever is published."""
    before = {} if seen.start is None else dict(seen.start.module.named_parameters())
    covered = {f"{layer.name}.{part}".lstrip(".") for layer in seen.observation.layers for part in ("weight", "bias")}
    return {
        key
        for key, value in seen.trained.named_parameters()
        if key in covered or (key in before and not torch.equal(value, before[key]))
    }


@torch.no_grad()
def _drift_of(seen: SeenModule, input_shape: tuple[int, ...], rows: Float[Tensor, "n d"]) -> float:
    assert seen.started is not None
    ends = [PenultimateFeatures(module, seen.head_name, input_shape) for module in (seen.trained, seen.started)]
    far = size = 0.0
    for block in rows.to(ends[0].head.weight).split(BLOCK):
        now, before = (end(block.reshape(-1, *input_shape)).double() for end in ends)
        far, size = far + float((now - before).square().sum()), size + float(now.square().sum())
    return math.sqrt(far / size) if size > 0 else 0.0


def _no_silence(seen: SeenModule, input_shape: tuple[int, ...]) -> str | None:
    """What keeps the silent-units attack from each layer but the head; None where a second state would do."""
    still = (lambda name: False) if seen.start is None else unchanged(seen.trained, seen.start)
    layers = seen_layers(seen.trained, input_shape, still)[:-1]
    if not layers:
        return "there is none but the head"
    if seen.started is None and any(layer.why_not is None for layer in layers):
        return None
    same = "both states of it are the same, so nothing was trained between them"
    return "; ".join(f"layer {layer.name!r}: {layer.why_not or same}" for layer in layers)
