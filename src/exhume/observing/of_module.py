"""What an attacker sees of a module: its head, the features that the head reads, and its layers at several moments.

Where the state before training is known, the weights are the change of the head, and features that moved are taken
halfway between both ends: closer to those on the way, of which the change is made.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures, averaged_features, axis_groups, penultimate_features
from exhume.features.ridge import RidgeFeatures
from exhume.layer_states import LayerStates
from exhume.network_ends import NetworkEnds
from exhume.networks.feature_layout import feature_layout
from exhume.networks.head import PenultimateFeatures, find_head, name_of, plain_head, with_bias
from exhume.networks.loading import prepare_for_attack
from exhume.observation import Initial, Knowledge, Observation
from exhume.observing.beside import Beside, layers_beside
from exhume.observing.dense_layers import dense_layers, in_order
from exhume.observing.known_start import KnownStart
from exhume.observing.of_head import observe_head
from exhume.observing.ridge_view import seen_as_ridge
from exhume.recipe import Recipe

Start = Mapping[str, Tensor] | Literal["zero"] | None
"""The state dict before training, or that of some layers; "zero" for a head that started at zero; None: unknown."""
PROBES = 8
MOVED = 1e-6  # relative change of features below which they are what they were


def observe(
    model: nn.Module,
    *,
    head: str | None = None,
    initial: Start = None,
    input_shape: tuple[int, ...] | None = None,
    norm: float | None = None,
    optimiser: Mapping[str, Any] | None = None,
    average: Mapping[str, Tensor] | None = None,
    training: Recipe | None = None,
) -> Observation:
    """What an attacker sees of a module: the features before its head, and the head's change, or the head itself.

    `head` is the name of a linear layer, the last one that is called if None. `initial` is the state dict before
    training, "zero" for a head that started at zero, or None where nobody knows; a state dict of some layers alone says
    nothing of the others. `input_shape` is that of one input,
    `norm` that of every training row, if an attacker would know it. `optimiser` is the state dict of the optimiser and
    `average` that of a moving average of the model, where a checkpoint holds them beside the weights. `training` is the
    recipe, where its owner declares it.
    """
    shape = default_input_shape(model) if input_shape is None else input_shape
    beside = Beside(optimiser, average)
    seen = look_at(model, shape, head, initial, norm, image_shape=as_image(shape), beside=beside)
    return replace(seen.observation, recipe=training)


@dataclass(frozen=True, eq=False, repr=False)
class SeenModule:
    """The observation of a module, and what else was seen on the way to it."""

    observation: Observation
    published: RidgeFeatures | ModuleFeatures
    """The features at the end of training; those of the observation may be halfway."""
    head_name: str
    head: Float[Tensor, "k p"]
    """W(T), of these features."""
    initial_head: Float[Tensor, "k p"] | None
    trained: nn.Module
    """A copy in evaluation mode."""
    start: KnownStart | None
    """The same with its weights before training, as far as they are known."""
    drift: float | None
    """How far the features of random inputs moved in training, over their size; None where their start is not known."""
    notes: tuple[str, ...]

    @property
    def started(self) -> nn.Module | None:
        """The whole module before training; None where some of its layers are not known."""
        return self.start.module if self.start is not None and self.start.whole else None


def look_at(
    model: nn.Module,
    input_shape: tuple[int, ...],
    head: str | None = None,
    initial: Start = None,
    norm: float | None = None,
    *,
    image_shape: tuple[int, int, int] | None = None,
    beside: Beside | None = None,
) -> SeenModule:
    """The module itself is left as it is. `beside` is what a checkpoint keeps beside the weights."""
    trained = copy.deepcopy(model)
    if next(trained.parameters()).dtype not in (torch.float32, torch.float64):
        trained.float()
    said = prepare_for_attack(trained)
    probe = torch.zeros(2, *input_shape).to(next(trained.parameters()))
    name = name_of(trained, plain_head(trained, head, probe))
    known = KnownStart.of(trained, initial) if isinstance(initial, Mapping) else None
    end, last = _end(trained, name, probe)
    began, first = (None, None) if known is None else _end(known.module, name, probe)
    if known is not None and not known.knows(name):
        first = None
    whole = known is not None and known.whole
    drift = _drift(end.networks[0], began.networks[0]) if began is not None and whole else None
    moved = drift is not None and drift > MOVED
    body = moved if known is None or whole else None
    knowledge = Knowledge(norm=norm, initial=_initial(initial, first), initial_body=body)
    features = end if began is None or not moved else averaged_features(began, end)
    seen = seen_as_ridge(observe_head(features, last, knowledge, image_shape, initial=first))
    if known is not None and not seen.features.is_network and known.stands_still(trained, apart_from=name):
        seen = replace(seen, features=replace(seen.ridge, trained=False))
    published: RidgeFeatures | ModuleFeatures = end
    form = []
    if not seen.features.is_network:
        published = seen_as_ridge(observe_head(end, last, Knowledge())).ridge
        form = [f"The features are {published.form('W')}: tried out."]
    layers: tuple[LayerStates, ...] = () if known is None else dense_layers(trained, known, input_shape)
    others, unused = ((), ()) if beside is None else layers_beside(trained, beside, input_shape)
    return SeenModule(
        observation=replace(
            seen,
            layers=in_order([*layers, *others]),
            ends=NetworkEnds(known.module, trained) if known is not None and whole else None,
        ),
        published=published,
        head_name=name,
        head=last[:, : published.p],  # φ(Wx + b) has no constant feature, and so no weight for one
        initial_head=None if first is None else first[:, : published.p],
        trained=trained,
        start=known,
        drift=drift,
        notes=tuple(note for note in (said, *form, *unused) if note),
    )


def _end(module: nn.Module, head: str, probe: Tensor) -> tuple[ModuleFeatures, Float[Tensor, "k p"]]:
    """The features at one end of training, and the head over them, whose bias is the weight of a constant one."""
    layer = find_head(module, head)
    biased = layer.bias is not None
    features = penultimate_features(module, head, tuple(probe.shape[1:]), bias=biased)
    layout = feature_layout(module, layer, probe)
    groups = None if layout is None else axis_groups(*layout, constant=biased)
    return replace(features, groups=groups), with_bias(layer.weight, layer.bias).clone()


@torch.no_grad()
def _drift(trained: PenultimateFeatures, started: PenultimateFeatures) -> float:
    stream = torch.Generator().manual_seed(0)
    probes = torch.randn(PROBES, *trained.input_shape, generator=stream).to(trained.head.weight)
    now, before = trained(probes).double(), started(probes).double()
    size = float(now.norm())
    return float((now - before).norm()) / size if size > 0 else 0.0


def _initial(initial: Start, head: Tensor | None) -> Initial:
    return "known" if head is not None else "zero" if initial == "zero" else "distribution"


def default_input_shape(model: nn.Module) -> tuple[int, ...]:
    """What a model takes, where no data tell: the inputs of a linear layer, if that is its first one."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            return (layer.in_features,)
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Embedding):
            break
    raise UsageError("expected the shape of one input of the model, found none given; give --image-shape, e.g. 3,32,32")


def as_image(input_shape: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    """Channels, height and width, where inputs have three sides."""
    return (input_shape[0], input_shape[1], input_shape[2]) if input_shape and len(input_shape) == 3 else None
