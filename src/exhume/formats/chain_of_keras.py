"""The dense layers of a Keras model, from its JSON and its datasets; of weights alone, from their groups."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import ExhumeError, UsageError
from exhume.formats.chain_of_tensors import natural
from exhume.formats.contents import Contents, StoredArray, StoredObject
from exhume.formats.dense_chain import WAY_OUT, DenseChain, DenseLayer, one_activation
from exhume.formats.keras_file import snake_case
from exhume.formats.keras_optimiser import keras_optimiser
from exhume.formats.linear_head import Scaler

PASSED = ("InputLayer", "Flatten", "Dropout", "Reshape", "ActivityRegularization")
KNOWN = ("relu", "tanh", "sigmoid", "gelu", "softplus", "linear", "silu", "elu", "relu6")
OTHER_NAMES = {"swish": "silu"}
LEAKY = "leaky_relu"
NORMALISATION = "Normalization"
EPSILON = 1e-7
OF_LAYERS = ("Activation", "ReLU", "LeakyReLU", "ELU")


def chain_of_keras(contents: Contents, path: Path) -> DenseChain:
    if not contents.objects:
        return _of_weights_alone(contents, path)
    layers: list[DenseLayer] = []
    given: list[str] = []  # what each dense layer applies to its own outputs
    scaler = None
    for layer in contents.objects:
        settings = layer.members["settings"]
        if layer.class_name == "Dense":
            layers.append(_layer(layer, contents, path, len(layers) + 1))
            given.append(_activation(settings.get("activation", "linear")))
        elif layer.class_name in OF_LAYERS and given and given[-1] == "linear":
            given[-1] = _of_layer(layer.class_name, settings)
        elif layer.class_name == NORMALISATION and not layers and scaler is None:
            scaler = _scaler(_own(layer, contents), settings, path)
        elif layer.class_name not in PASSED:
            raise UsageError(f"expected dense layers alone in {path}, found {layer.class_name!r}; {WAY_OUT}")
    odd = next((name for name in given[:-1] if name not in (*KNOWN, LEAKY)), None)
    if odd is not None:
        raise UsageError(f"expected an activation out of {', '.join(KNOWN)} in {path}, found {odd[:40]!r}; {WAY_OUT}")
    names = [layer.where for layer in contents.objects if layer.class_name == "Dense"]
    return _chain(contents, layers, names, one_activation(given[:-1], path), scaler, path)


def _layer(layer: StoredObject, contents: Contents, path: Path, number: int) -> DenseLayer:
    """By the group of its class in the layout of Keras 3, or by its own name in the older one."""
    found = list(_own(layer, contents).values())
    kernels, biases = ([array for array in found if len(array.shape) == sides] for sides in (2, 1))
    if len(kernels) != 1 or len(biases) > 1:
        raise ExhumeError(f"expected a kernel and a bias of {layer.where!r} in {path}, found {len(found)} arrays")
    return _dense(kernels[0], biases[0] if biases else None, number)


def _own(layer: StoredObject, contents: Contents) -> dict[str, StoredArray]:
    """The arrays of a layer by the last part of their names."""
    prefixes = (f"layers/{layer.members['group']}/vars/", f"model_weights/{layer.where}/")
    return {name.rpartition("/")[2]: array for name, array in contents.arrays.items() if name.startswith(prefixes)}


def _scaler(own: Mapping[str, Any], settings: Mapping[str, Any], path: Path) -> Scaler:
    """Of Keras's Normalization, whose numbers are variables or settings. It divides by EPSILON at least."""
    parts = []
    for name, number in (("mean", "0"), ("variance", "1")):
        found = own.get(name, own.get(number))
        try:
            parts.append(np.asarray(settings.get(name) if found is None else found.read(), np.float64).ravel())
        except (TypeError, ValueError):
            parts.append(np.full(1, np.nan))
    mean, variance = parts
    usable = mean.shape == variance.shape and np.isfinite(mean).all() and np.isfinite(variance).all()
    if settings.get("invert") or not usable or (variance < 0).any():
        raise UsageError(
            f"expected a mean and a variance per input of Normalization in {path}, found others; {WAY_OUT}"
        )
    return Scaler(mean, np.maximum(np.sqrt(variance), EPSILON))


def _of_weights_alone(contents: Contents, path: Path) -> DenseChain:
    """`.weights.h5`: kernels and biases under layers/<group>/vars, in the order of their names."""
    groups: dict[str, list[StoredArray]] = {}
    for name, array in contents.arrays.items():
        if not name.startswith("optimizer"):
            groups.setdefault(name.rpartition("/")[0], []).append(array)
    layers: list[DenseLayer] = []
    scaler = None
    for group in sorted(groups, key=lambda name: (snake_case(NORMALISATION) not in name.split("/"), natural(name))):
        if not layers and scaler is None and snake_case(NORMALISATION) in group.split("/"):
            scaler = _scaler({array.name.rpartition("/")[2]: array for array in groups[group]}, {}, path)
            continue
        kernels, biases = ([array for array in groups[group] if len(array.shape) == sides] for sides in (2, 1))
        if len(kernels) != 1 or len(kernels) + len(biases) != len(groups[group]) or len(biases) > 1:
            raise UsageError(f"expected dense layers alone in {path}, found the group {group[:80]!r}; {WAY_OUT}")
        layers.append(_dense(kernels[0], biases[0] if biases else None, len(layers) + 1))
    return _chain(contents, layers, [], None, scaler, path)


def _chain(
    contents: Contents,
    layers: list[DenseLayer],
    names: list[str],
    activation: str | None,
    scaler: Scaler | None,
    path: Path,
) -> DenseChain:
    if scaler is not None and (not layers or len(scaler.centre) != layers[0].weight.shape[1]):
        raise UsageError(f"expected one mean per input in {path}, found {len(scaler.centre)}; {WAY_OUT}")
    kept = keras_optimiser(contents, layers, names)
    return DenseChain(tuple(layers), activation, (), kept.buffers, scaler, kept.average)


def _dense(kernel: StoredArray, bias: StoredArray | None, number: int) -> DenseLayer:
    return DenseLayer(f"dense{number}", np.asarray(kernel.read()).T, None if bias is None else np.asarray(bias.read()))


def _activation(stated: Any) -> str:
    """Its name; Keras writes a text, or an object with one."""
    if isinstance(stated, dict):
        inner = stated.get("config")
        stated = (
            inner.get("name", stated.get("class_name"))
            if isinstance(inner, dict)
            else inner or stated.get("class_name")
        )
    name = str(stated).lower().rpartition(".")[2]
    # a slope of 0.2 is what Keras means by the name alone, and exhume's is 0.01
    return "leaky_relu with a slope of 0.2" if name == LEAKY else OTHER_NAMES.get(name, name)


def _of_layer(kind: str, settings: dict[str, Any]) -> str:
    """The activation of a layer that is one."""
    if kind == "Activation":
        return _activation(settings.get("activation", "linear"))
    slope = settings.get("negative_slope", settings.get("alpha"))
    if kind == "ReLU":
        ends = {None: "relu", 6: "relu6"}
        plain = not slope and not settings.get("threshold")
        end = settings.get("max_value")
        return (
            ends.get(end, f"relu up to {end}") if plain and not isinstance(end, list | dict) else "relu with settings"
        )
    if kind == "ELU":
        return "elu" if slope in (None, 1) else f"elu with a slope of {slope}"
    return LEAKY if slope == 0.01 else f"leaky_relu with a slope of {0.3 if slope is None else slope}"
