"""A module and its weights as a target: the head, and the features that it reads."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.auditing.layers import facts_of_module
from exhume.auditing.target import Target, what_is_attacked
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures, averaged_features, penultimate_features
from exhume.features.ridge import RidgeFeatures
from exhume.features.ridge_form import as_ridge, halfway_ridge, shared_groups
from exhume.layer_states import LayerStates
from exhume.networks.head import find_head, layer_in_front, name_of
from exhume.networks.loading import load_state, prepare_for_attack, with_statistics_of
from exhume.observation import Initial, Knowledge, Observation
from exhume.observing.beside import Beside, layers_beside
from exhume.observing.dense_layers import dense_layers, in_order, unchanged
from exhume.observing.seen_layers import seen_layers

Start = Mapping[str, Tensor] | Literal["zero"] | None
"""The state dict before training, "zero" for a head that started at zero, None where nobody knows."""
PROBES = 8
MOVED = 1e-6  # relative change of features below which they are what they were


def target_of_module(
    model: nn.Module,
    *,
    head: str | None = None,
    input_shape: tuple[int, ...],
    initial: Start = None,
    norm: float | None = None,
    image_shape: tuple[int, int, int] | None = None,
    beside: Beside | None = None,
) -> Target:
    """The head of a module and the features that it reads. The module itself is left as it is.

    `beside` is what a checkpoint keeps beside the weights: further states of its layers.
    """
    trained = copy.deepcopy(model)
    if next(trained.parameters()).dtype not in (torch.float32, torch.float64):
        trained.float()
    said = prepare_for_attack(trained)
    kind = next(trained.parameters())
    layer = find_head(trained, head, torch.zeros((2, *input_shape), dtype=kind.dtype, device=kind.device))
    name = name_of(trained, layer)
    if not set(layer.state_dict()) <= {"weight", "bias"}:
        raise UsageError(f"expected a head with a plain weight and bias, found {', '.join(layer.state_dict())}")
    end, start = _both_ends(trained, name, input_shape, initial)
    drift = None if start is None else _drift(end.plain, start.plain)
    observation = _observation(end, start, bool(drift and drift > MOVED), _initial(initial), norm, image_shape)
    started = _at_start(trained, initial) if isinstance(initial, Mapping) else None
    layers: tuple[LayerStates, ...] = ()
    if started is not None:
        layers = dense_layers(trained, started, input_shape)
    others, unused = ((), ()) if beside is None else layers_beside(trained, beside, input_shape)
    layers = in_order([*layers, *others])
    observation = replace(observation, layers=layers)
    ridge = end.ridge is not None

    def remade(change: Callable[[Tensor], Tensor]) -> Target:
        other = copy.deepcopy(trained)
        own = find_head(other, name)
        with torch.no_grad():
            for key, weights in other.named_parameters():
                if key in moved and weights is not own.weight and weights is not own.bias:
                    weights.copy_(change(weights.detach()))
        return target_of_module(
            other,
            head=name,
            input_shape=input_shape,
            initial=initial,
            norm=norm,
            image_shape=image_shape,
            beside=beside,
        )

    moved = _known_to_have_moved(trained, started, layers)
    return Target(
        observation=observation,
        features=end.features,
        head_name=name or type(model).__name__,
        head=end.head,
        initial_head=None if start is None else start.head,
        output_bias=layer.bias.detach().clone() if layer.bias is not None and ridge else None,
        layers=facts_of_module(
            trained,
            name,
            initial if isinstance(initial, Mapping) else None,
            what_is_attacked(observation),
            uses_first=observation.initial_rows is not None,
            also=observation.layers[0].name if observation.layers else None,
        ),
        notes=tuple(note for note in (said, end.describe(), *unused) if note),
        drift=drift,
        no_silence=None if layers else _no_silence(trained, started, input_shape),
        in_front=layer_in_front(trained, layer, torch.zeros((2, *input_shape), dtype=kind.dtype, device=kind.device)),
        remade=remade,
    )


def _known_to_have_moved(trained: nn.Module, started: nn.Module | None, layers: tuple[LayerStates, ...]) -> set[str]:
    """Names of parameters. Those of a frozen extractor are public, whatever is published."""
    before = {} if started is None else dict(started.named_parameters())
    told = {f"{layer.name}.{part}".lstrip(".") for layer in layers for part in ("weight", "bias")}
    return {
        key
        for key, value in trained.named_parameters()
        if key in told or (key in before and not torch.equal(value, before[key]))
    }


def _no_silence(trained: nn.Module, started: nn.Module | None, input_shape: tuple[int, ...]) -> str | None:
    """What keeps the silent-units attack from each layer but the head; None where a second state would do."""
    still = (lambda name: False) if started is None else unchanged(trained, started)
    seen = seen_layers(trained, input_shape, still)[:-1]
    if not seen:
        return "there is none but the head"
    if started is None and any(layer.why_not is None for layer in seen):
        return None
    same = "both states of it are the same, so nothing was trained between them"
    return "; ".join(f"layer {layer.name!r}: {layer.why_not or same}" for layer in seen)


@dataclass(frozen=True, eq=False)
class _End:
    """A network at one end of its training. `ridge` is None where its features are not φ(Wx + b).

    `normed`: W holds a batch norm as well.
    """

    plain: ModuleFeatures
    ridge: RidgeFeatures | None
    features: RidgeFeatures | ModuleFeatures
    head: Float[Tensor, "k p"]
    normed: bool = False

    def describe(self) -> str | None:
        if self.ridge is None:
            return None
        return (
            f"The features are {self.ridge.activation.name}(Wx{'' if self.ridge.bias is None else ' + b'}): tried out."
        )


def _both_ends(trained: nn.Module, head: str, input_shape: tuple[int, ...], initial: Start) -> tuple[_End, _End | None]:
    """The network now and, where it is known, before training: both seen as φ(Wx + b), or neither."""
    end = _look(trained, head, input_shape)
    if not isinstance(initial, Mapping):
        return end, None
    started = _at_start(trained, initial)
    start = _look(started, head, input_shape)
    if (end.ridge is None) != (start.ridge is None):
        return _look(trained, head, input_shape, as_it_is=True), _look(started, head, input_shape, as_it_is=True)
    return end, start


def _look(module: nn.Module, head: str, input_shape: tuple[int, ...], as_it_is: bool = False) -> _End:
    """A bias of the head is one more weight, of a feature that is always 1; φ(Wx + b) has no such feature.

    `as_it_is`: not as φ(Wx + b), also where its features are.
    """
    layer, plain = find_head(module, head), penultimate_features(module, head, input_shape)
    form, weight = None if as_it_is else as_ridge(module, plain), layer.weight.detach().clone()
    if form is not None:
        return _End(plain, form.features, form.features, weight, form.normed)
    features = penultimate_features(module, head, input_shape, bias=layer.bias is not None)
    features = replace(features, groups=shared_groups(module, head, features.p, layer.bias is not None))
    matrix = weight if layer.bias is None else torch.cat([weight, layer.bias.detach()[:, None]], dim=1)
    return _End(plain, None, features, matrix)


def _observation(
    end: _End,
    start: _End | None,
    moved: bool,
    initial: Initial,
    norm: float | None,
    image_shape: tuple[int, int, int] | None,
) -> Observation:
    """The change of the head where its start is known; features that moved are taken halfway between both ends."""
    if start is None:
        return Observation(end.features, end.head, Knowledge(norm=norm, initial=initial), image_shape)
    knowledge = Knowledge(norm=norm, initial=initial, initial_body=moved)
    return Observation(
        _halfway(end, start) if moved else end.features,
        end.head - start.head,
        knowledge,
        image_shape,
        head=end.head,
        initial_rows=start.ridge.rows if moved and start.ridge is not None and not start.normed else None,
    )


def _halfway(end: _End, start: _End) -> RidgeFeatures | ModuleFeatures:
    """Closer to the features on the way, of which the change of the head is made."""
    if end.ridge is None or start.ridge is None:
        assert isinstance(end.features, ModuleFeatures)
        assert isinstance(start.features, ModuleFeatures)
        return averaged_features(start.features, end.features)
    return halfway_ridge(end.ridge, start.ridge)


def _at_start(trained: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    started = copy.deepcopy(trained)
    load_state(started, with_statistics_of(trained.state_dict(), state), "the initial weights")
    return started


def _initial(initial: Start) -> Initial:
    return "known" if isinstance(initial, Mapping) else "zero" if initial == "zero" else "distribution"


def _drift(trained: ModuleFeatures, started: ModuleFeatures) -> float:
    stream = torch.Generator().manual_seed(0)
    probes = torch.randn(PROBES, trained.d, generator=stream).to(device=trained.device, dtype=trained.dtype)
    now, before = trained(probes).double(), started(probes).double()
    size = float(now.norm())
    return float((now - before).norm()) / size if size > 0 else 0.0


def default_input_shape(model: nn.Module) -> tuple[int, ...]:
    """What a model takes, where no data tell: the inputs of a linear layer, if that is its first one."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            return (layer.in_features,)
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Embedding):
            break
    raise UsageError("expected the shape of one input of the model, found none given; give --image-shape, e.g. 3,32,32")
