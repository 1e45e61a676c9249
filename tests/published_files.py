"""Files as other tools write them: skops and ONNX by the tools themselves, Keras in the layout of its own writer."""

import io
import itertools
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def iris() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_iris

    return load_iris(return_X_y=True)


def fitted(model: Any, x: np.ndarray | None = None, y: np.ndarray | None = None) -> Any:
    from sklearn.exceptions import ConvergenceWarning

    own_x, own_y = iris()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return model.fit(own_x if x is None else x, own_y if x is None else y)


def save_skops(model: Any, path: Path) -> Path:
    import skops.io

    skops.io.dump(model, path)
    return path


def save_onnx(model: Any, path: Path, columns: int = 4) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from skl2onnx import to_onnx

        made = to_onnx(model, np.zeros((1, columns), np.float32))
    path.write_bytes(made.SerializeToString())
    return path


Layers = list[tuple[np.ndarray, np.ndarray]]
"""Weights (outputs x inputs) and biases, as torch has them."""


def dense_settings(layers: Layers, activation: str = "relu") -> dict[str, Any]:
    """The JSON that Keras writes of a Sequential model of dense layers."""
    listed: list[dict[str, Any]] = [
        {"module": "keras.layers", "class_name": "InputLayer", "config": {"name": "input_layer"}}
    ]
    for number, (weight, _) in enumerate(layers):
        last = number == len(layers) - 1
        settings = {
            "name": f"dense_{number + 3}",
            "units": weight.shape[0],
            "activation": "linear" if last else activation,
            "use_bias": True,
        }
        listed.append({"module": "keras.layers", "class_name": "Dense", "config": settings})
    return {"module": "keras", "class_name": "Sequential", "config": {"name": "sequential", "layers": listed}}


def save_keras(layers: Layers, path: Path, activation: str = "relu", optimiser: bool = False) -> Path:
    """`.keras`: an archive of JSON and one HDF5 file, groups by class in snake case and a count."""
    inner = io.BytesIO()
    with h5py.File(inner, "w") as file:
        for number, (weight, bias) in enumerate(layers):
            variables = file.create_group(f"layers/dense{f'_{number}' if number else ''}/vars")
            variables["0"], variables["1"] = weight.T, bias
        if optimiser:
            kept = file.create_group("optimizer/vars")
            kept["0"], kept["1"] = np.int64(7), np.float32(0.1)
            for number, (weight, bias) in enumerate(layers):
                kept[str(2 + 2 * number)], kept[str(3 + 2 * number)] = weight.T, bias
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.9.0"}))
        archive.writestr("config.json", json.dumps(dense_settings(layers, activation)))
        archive.writestr("model.weights.h5", inner.getvalue())
    return path


def save_h5(layers: Layers, path: Path, activation: str = "relu", optimiser: bool = False) -> Path:
    """`.h5` as Keras 2 and 3 write a whole model."""
    names = [f"dense_{number + 3}" for number in range(len(layers))]
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(dense_settings(layers, activation)).encode()
        file.attrs["keras_version"] = "2.15.0"
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [name.encode() for name in names]
        for name, (weight, bias) in zip(names, layers, strict=True):
            group = weights.create_group(name)
            group.attrs["weight_names"] = [f"{name}/kernel:0".encode(), f"{name}/bias:0".encode()]
            group[f"{name}/kernel:0"], group[f"{name}/bias:0"] = weight.T, bias
        if optimiser:
            file["optimizer_weights/adam/m/dense_3/kernel"] = layers[0][0].T
    return path


def some_layers(widths: tuple[int, ...] = (6, 5, 3)) -> Layers:
    dice = np.random.default_rng(0)
    return [
        (dice.standard_normal((out, into)).astype(np.float32), dice.standard_normal(out).astype(np.float32))
        for into, out in itertools.pairwise(widths)
    ]
