"""`exhume gauge` counts the weights of any file that can be read, and says of any other what helps."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import joblib
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPClassifier

from published_files import fitted, save_h5, save_keras, save_onnx, save_skops, some_layers

Command = Callable[..., subprocess.CompletedProcess[str]]
OF_LAYERS = 6 * 5 + 5 + 5 * 3 + 3
OF_NETWORK = 4 * 5 + 5 + 5 * 3 + 3


def folder_of_shards(path: Path) -> Path:
    path.mkdir()
    save_file({"a.weight": torch.ones(5, 6), "a.bias": torch.ones(5)}, path / "one.safetensors")
    save_file({"b.weight": torch.ones(3, 5), "b.bias": torch.ones(3)}, path / "two.safetensors")
    listed = {f"{name}.{part}": f"{file}.safetensors" for name, file in (("a", "one"), ("b", "two")) for part in PARTS}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    return path


PARTS = ("weight", "bias")


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda folder: save_keras(some_layers(), folder / "a.keras", optimiser=True), OF_LAYERS),
        (lambda folder: save_h5(some_layers(), folder / "a.h5", optimiser=True), OF_LAYERS),
        (lambda folder: save_skops(fitted(MLPClassifier((5,), max_iter=3)), folder / "a.skops"), OF_NETWORK),
        (lambda folder: save_onnx(fitted(MLPClassifier((5,), max_iter=3)), folder / "a.onnx"), OF_NETWORK),
        (lambda folder: save_skops(fitted(Ridge()), folder / "a.skops"), 4),
        (lambda folder: folder_of_shards(folder / "hub"), OF_LAYERS),
    ],
    ids=["keras", "h5", "skops", "onnx", "a linear model", "shards"],
)
def test_weights_of_every_format_are_counted(
    exhume: Command, tmp_path: Path, make: Callable[[Path], Path], count: int
) -> None:
    shown = exhume("gauge", make(tmp_path), "--dim", 6, "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["p"] == count


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.joblib", "skops.io.dump"),
        ("a.gguf", "gguf_file"),
        ("a.txt", "expected a model file"),
        ("a.onnx", "no array"),
    ],
)
def test_what_cannot_be_counted_says_what_helps(exhume: Command, tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / name
    if name == "a.joblib":
        joblib.dump(fitted(Ridge()), path)
    elif name == "a.onnx":
        told = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [told], [])
        path.write_bytes(helper.make_model(graph).SerializeToString())
    else:
        path.write_text("GGUF" if name == "a.gguf" else "some text of anybody's own")
    shown = exhume("gauge", path, "--dim", 6)
    assert shown.returncode == 1
    assert words in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
