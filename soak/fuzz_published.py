"""Small files as other tools write them: scikit-learn by skops, ONNX and joblib, Keras, NumPy, PyTorch, notebooks."""

import io
import json
import shutil
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import h5py
import joblib
import numpy as np
import onnx
import pyarrow
import skops.io
import torch
from onnx import TensorProto, helper
from pyarrow import parquet
from safetensors.torch import save_file
from sklearn.cluster import KMeans
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC


def make_published(folder: Path) -> None:
    folder.mkdir()
    dice = np.random.default_rng(0)
    x, y = dice.standard_normal((8, 3)), np.arange(8) % 2
    skops.io.dump(make_pipeline(StandardScaler(), SVC()).fit(x, y), folder / "svc.skops")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one step is no convergence, and is not meant to be
        network = MLPRegressor(hidden_layer_sizes=(4,), max_iter=1, random_state=0).fit(x, y)
    skops.io.dump([network, OneHotEncoder().fit(y[:, None])], folder / "mlp.skops")
    skops.io.dump(
        [KMeans(7, n_init=1).fit(x), KernelRidge(kernel="precomputed").fit(x @ x.T, y)], folder / "kept.skops"
    )
    joblib.dump(KNeighborsClassifier(3).fit(x, y), folder / "knn.joblib")
    joblib.dump(KNeighborsClassifier(3).fit(x, y), folder / "packed.joblib", compress=3)
    np.save(folder / "rows.npy", x)
    np.savez(folder / "arrays.npz", x_train=x, y=y)
    state = {"0.weight": torch.ones(4, 3), "0.bias": torch.ones(4)}
    kept = {"state": {0: {"exp_avg": torch.ones(4, 3)}}, "param_groups": [{"params": [0, 1]}]}
    torch.save({"model": state, "optimizer": kept, "args": {"seed": 3}}, folder / "checkpoint.pt")
    save_file(state, folder / "one.safetensors")
    index = {"weight_map": dict.fromkeys(state, "one.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"_name_or_path": "org/base", "seed": 4}))
    cell = {"cell_type": "code", "outputs": [{"data": {"text/html": ["<table>"]}}]}
    (folder / "look.ipynb").write_text(json.dumps({"cells": [cell]}))
    (folder / "train.csv").write_text("age,city,ill\n31,Ulm,0\n52,Bern,1\n47.5,Ulm,1\n")
    (folder / "members.csv").write_text("age,dose,ill,old\n31,2,0,1\n52,1,1,0\n47.5,3,1,1\n")
    parquet.write_table(pyarrow.table({"age": [31.0, 52.0], "city": ["Ulm", "Bern"]}), folder / "train.parquet")
    (folder / "scales.json").write_text('{"age": [40, 10.5], "ill": [0, 1]}')
    skops.io.dump(StandardScaler().fit(x[:, :2]), folder / "scaler.skops")
    (folder / "recipe.json").write_text('{"optimiser": "adam", "rate": 0.001, "steps": 50, "labels": [3, 1, 4]}')
    columns = {"age": "number", "city": ["Bern", "Ulm"]}
    (folder / "columns.json").write_text(json.dumps(columns))
    _make_hub(folder / "hub", state, kept)
    (folder / "outline.bin").write_bytes(b"[[0, 2], [7, 1]]\nabc")
    _make_heads(folder, x, y)
    _make_adapter(folder / "adapter", x)
    _make_onnx(folder / "svc.onnx", x)
    _make_kernel(folder / "kernel.onnx", x)
    _make_chain(folder / "chain.onnx")
    _make_keras(folder)


def _make_heads(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Linear models as `exhume rank` takes them, with a scaler in front."""
    newer, older = (make_pipeline(StandardScaler(), LogisticRegression()).fit(x[at:], y[at:]) for at in (1, 0))
    skops.io.dump(newer, folder / "head.skops")
    skops.io.dump(older, folder / "older-head.skops")
    np.save(folder / "public.npy", np.random.default_rng(2).standard_normal((30, 3)))
    scaler = helper.make_node("Scaler", ["x"], ["h"], domain="ai.onnx.ml", offset=[0.0] * 3, scale=[1.0] * 3)
    linear = helper.make_node(
        "LinearClassifier",
        ["h"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        coefficients=[1.0, 2.0, 3.0, -1.0, -2.0, -3.0],
        intercepts=[0.5, -0.5],
        classlabels_ints=[0, 1],
        post_transform="LOGISTIC",
    )
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])]
    given = [helper.make_tensor_value_info("label", TensorProto.INT64, [None])]
    onnx.save(helper.make_model(helper.make_graph([scaler, linear], "g", taken, given)), folder / "head.onnx")


class Arguments:
    """In place of transformers' TrainingArguments: an object that no reader knows."""

    def __init__(self) -> None:
        self.seed, self.optim = 3, "sgd"


def _make_hub(folder: Path, state: dict[str, torch.Tensor], kept: Mapping[str, object]) -> None:
    """As transformers' Trainer leaves it: weights, settings, the optimiser, what resumes training, a tokeniser."""
    folder.mkdir()
    save_file(state | {"2.weight": torch.ones(2, 4), "2.bias": torch.ones(2)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "mlp", "hidden_act": "tanh", "_name_or_path": "org/base"}')
    (folder / "training_args.json").write_text('{"seed": 3, "optim": "adamw_torch", "weight_decay": 0.01}')
    (folder / "trainer_state.json").write_text('{"global_step": 2, "log_history": [{"loss": 0.5, "step": 1}]}')
    (folder / "added_tokens.json").write_text('{"<ward>": 5}')
    torch.save(Arguments(), folder / "training_args.bin")
    torch.save({"python": (3, (1, 2), None), "cpu": torch.zeros(8, dtype=torch.uint8)}, folder / "rng_state.pth")
    torch.save(kept, folder / "optimizer.pt")


def _make_adapter(folder: Path, x: np.ndarray) -> None:
    """In the layout that peft writes, with its base model beside it."""
    folder.mkdir()
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "org/base", "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"alpha_pattern": {"fc1": 8}}))
    tensors = {
        "base_model.model.fc1.lora_A.weight": torch.ones(2, 3),
        "base_model.model.fc1.lora_B.weight": torch.ones(5, 2),
        "base_model.model.words.lora_embedding_A": torch.ones(2, 6),
        "base_model.model.words.lora_embedding_B": torch.ones(4, 2),
        "base_model.model.fc2.weight": torch.ones(2, 5),
        "base_model.model.fc2.bias": torch.ones(2),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    own = {name: values for name, values in tensors.items() if "words" not in name}
    (folder.parent / "plain-adapter").mkdir()
    shutil.copy(folder / "adapter_config.json", folder.parent / "plain-adapter")
    save_file(own, folder.parent / "plain-adapter" / "adapter_model.safetensors")
    base = {"fc1.weight": torch.ones(5, 3), "fc1.bias": torch.ones(5)}
    save_file(base | {"fc2.weight": torch.zeros(2, 5), "fc2.bias": torch.zeros(2)}, folder.parent / "base.safetensors")


def _make_onnx(path: Path, x: np.ndarray) -> None:
    machine = helper.make_node(
        "SVMClassifier",
        ["h"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        support_vectors=x.ravel().tolist(),
        vectors_per_class=[4, 4],
        coefficients=[0.5] * 8,
    )
    dense = helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1)
    weights = [
        helper.make_tensor("w", TensorProto.FLOAT, [3, 3], np.ones(9, np.float32).tobytes(), raw=True),
        helper.make_tensor("b", TensorProto.FLOAT, [3], [0.0, 1.0, 2.0]),
    ]
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])]
    given = [helper.make_tensor_value_info("label", TensorProto.INT64, [None])]
    graph = helper.make_graph([dense, machine], "g", taken, given, initializer=weights)
    onnx.save(helper.make_model(graph), path)


def _make_chain(path: Path) -> None:
    """Two dense layers, with SiLU between them as two nodes."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node("Sigmoid", ["h"], ["s"]),
        helper.make_node("Mul", ["h", "s"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["y"]),
    ]
    shapes = {"w": (4, 3), "b": (4,), "v": (4, 2), "c": (2,)}
    weights = [helper.make_tensor(name, TensorProto.FLOAT, s, [0.5] * int(np.prod(s))) for name, s in shapes.items()]
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])]
    given = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", taken, given, initializer=weights)), path)


def _make_kernel(path: Path, x: np.ndarray) -> None:
    """A scaler, records that are scaled by a kernel, distances to them, and a product with others."""
    nodes = [
        helper.make_node("Scaler", ["x"], ["h"], domain="ai.onnx.ml", offset=[0.0] * 3, scale=[2.0] * 3),
        helper.make_node("Div", ["records", "length"], ["scaled"]),
        helper.make_node("CDist", ["h", "scaled"], ["k"], domain="com.microsoft"),
        helper.make_node("Transpose", ["records"], ["turned"]),
        helper.make_node("MatMul", ["h", "turned"], ["y"]),
    ]
    constants = [
        helper.make_tensor("records", TensorProto.FLOAT, x.shape, x.astype(np.float32).tobytes(), raw=True),
        helper.make_tensor("length", TensorProto.FLOAT, [1], [3.0]),
    ]
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])]
    given = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, len(x)])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", taken, given, initializer=constants)), path)


def _make_keras(folder: Path) -> None:
    layers: list[dict[str, object]] = [
        {"class_name": "Dense", "config": {"name": f"dense_{number}", "units": 4, "activation": "relu"}}
        for number in range(2)
    ]
    layers.insert(0, {"class_name": "Normalization", "config": {"name": "normalization", "invert": False}})
    settings = json.dumps({"class_name": "Sequential", "config": {"name": "s", "layers": layers}})
    inner = io.BytesIO()
    for place in (inner, folder / "dense.h5"):
        with h5py.File(place, "w") as file:
            file.attrs["model_config"] = settings
            for number, group in enumerate(("layers/dense", "layers/dense_1")):
                file[f"{group}/vars/0"], file[f"{group}/vars/1"] = np.ones((3 + number, 4), "f4"), np.ones(4, "f4")
                for first, sign in ((2, 1), (6, -1)):  # a moving average, and a momentum
                    file[f"optimizer/vars/{first + 2 * number}"] = sign * np.ones((3 + number, 4), "f4")
                    file[f"optimizer/vars/{first + 1 + 2 * number}"] = sign * np.ones(4, "f4")
            for number, values in enumerate((np.zeros(3, "f4"), np.ones(3, "f4"))):
                file[f"layers/normalization/vars/{number}"] = values
    with zipfile.ZipFile(folder / "dense.keras", "w") as archive:
        archive.writestr("config.json", settings)
        archive.writestr("metadata.json", "{}")
        archive.writestr("model.weights.h5", inner.getvalue())
