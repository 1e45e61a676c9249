"""What readers hand back is what the tools wrote."""

import json
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from exhume.errors import ExhumeError
from exhume.formats.chain_reading import chain_of
from exhume.formats.contents import StoredArray
from exhume.formats.pickles import read_program
from exhume.formats.reading import read_contents
from exhume.scanning.scan import scan
from published_files import dense_settings, fitted, iris, save_h5, save_keras, save_onnx, save_skops, some_layers


def test_safetensors_are_read_as_their_own_library_reads_them(tmp_path: Path) -> None:
    dice = torch.Generator().manual_seed(0)
    tensors = {
        str(dtype): torch.randn(4, 3, generator=dice).to(dtype)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.bool)
    }
    save_file(tensors, tmp_path / "a.safetensors")
    found = read_contents(tmp_path / "a.safetensors").arrays
    for name, tensor in tensors.items():
        own = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        np.testing.assert_array_equal(found[name].read(), own.numpy())


def test_shards_come_together(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "m-1.safetensors")
    save_file({"b": torch.zeros(3)}, tmp_path / "m-2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}')
    assert set(read_contents(index).arrays) == {"a", "b"}


def test_a_checkpoint_is_flattened(tmp_path: Path) -> None:
    saved = {
        "model": {"fc.weight": torch.ones(2, 3)},
        "epoch": 4,
        "args": {"seed": 7, "name": "a"},
        "all": [torch.zeros(1)],
    }
    torch.save(saved, tmp_path / "a.pt")
    found = read_contents(tmp_path / "a.pt")
    assert found.values == {"epoch": 4, "args.seed": 7, "args.name": "a"}
    assert {name: array.shape for name, array in found.arrays.items()} == {"model.fc.weight": (2, 3), "all.0": (1,)}


def test_skops_gives_the_members_of_every_estimator(tmp_path: Path) -> None:
    model = fitted(make_pipeline(StandardScaler(), SVC()))
    found = read_contents(save_skops(model, tmp_path / "a.skops"))
    (machine,) = found.objects_of("SVC")
    assert machine.kind == "sklearn.svm._classes.SVC"
    vectors = machine.array("support_vectors_")
    assert vectors is not None
    np.testing.assert_array_equal(vectors.read(), model[-1].support_vectors_)
    assert machine.members["C"] == 1.0
    words = CountVectorizer().fit(["one two", "two three"])
    (kept,) = read_contents(save_skops(words, tmp_path / "b.skops")).objects_of("CountVectorizer")
    assert kept.members["vocabulary_"] == {"one": 0, "two": 2, "three": 1}


def test_a_sparse_matrix_is_written_out(tmp_path: Path) -> None:
    from scipy.sparse import csr_matrix

    x, y = iris()
    model = KNeighborsClassifier(3).fit(csr_matrix(x), y)
    (kept,) = read_contents(save_skops(model, tmp_path / "a.skops")).objects_of("KNeighborsClassifier")
    rows = kept.array("_fit_X")
    assert rows is not None
    assert rows.shape == x.shape
    np.testing.assert_array_equal(rows.read(), x)


def test_onnx_gives_initialisers_and_nodes(tmp_path: Path) -> None:
    model = fitted(MLPClassifier((8,), max_iter=5, random_state=0))
    found = read_contents(save_onnx(model, tmp_path / "a.onnx"))
    np.testing.assert_allclose(found.arrays["coefficient"].read(), model.coefs_[0], rtol=1e-6)
    assert [node.class_name for node in found.objects][:4] == ["Cast", "MatMul", "Add", "Relu"]


@pytest.mark.parametrize("save", [save_keras, save_h5])
def test_keras_gives_layers_and_their_arrays(tmp_path: Path, save: object) -> None:
    layers = some_layers()
    assert callable(save)
    found = read_contents(save(layers, tmp_path / ("a.keras" if save is save_keras else "a.h5")))
    assert [layer.class_name for layer in found.objects] == ["InputLayer", "Dense", "Dense"]
    first = found.arrays["layers/dense/vars/0" if save is save_keras else "model_weights/dense_3/dense_3/kernel:0"]
    np.testing.assert_array_equal(first.read(), layers[0][0].T)


def test_a_library_that_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_h5(some_layers(), tmp_path / "a.h5")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ExhumeError, match=r"pip install 'exhume\[keras\]'"):
        read_contents(path)


def test_the_words_of_a_pickle_are_read_without_running_it() -> None:
    import pickle

    program = read_program(pickle.dumps({"exp_avg": [1, 2], "lr": 0.5}) + b"rubbish")
    assert "exp_avg" in program.words
    assert program.pairs == {"lr": 0.5}
    assert not program.whole


def test_an_array_of_its_own_is_an_array() -> None:
    assert StoredArray.of("a", np.zeros((2, 3))).numbers == 6


def test_an_old_file_of_tensors_is_converted_without_trust(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(ExhumeError, match=r'torch.load\("a.pt", weights_only=True\)'):
        read_contents(tmp_path / "a.pt")


@pytest.mark.parametrize("layout", ["numbers", "names"])
@pytest.mark.parametrize(("per_part", "buffer"), [(1, "momentum_buffer"), (2, "exp_avg")])
def test_the_optimiser_of_a_keras_model_is_read(tmp_path: Path, layout: str, per_part: int, buffer: str) -> None:
    """Names and numbers as Keras 3.15 writes them for SGD and for Adam."""
    layers, path = some_layers(), tmp_path / ("a.keras" if layout == "numbers" else "a.h5")
    gradients = [part for weight, bias in layers for part in (weight.T - 1, bias - 1)]
    kept = [own for part in gradients for own in (part, part**2)[:per_part]]
    if layout == "numbers":
        with h5py.File(tmp_path / "model.weights.h5", "w") as file:
            for number, (weight, bias) in enumerate(layers):
                file[f"layers/dense{f'_{number}' if number else ''}/vars/0"] = weight.T
                file[f"layers/dense{f'_{number}' if number else ''}/vars/1"] = bias
            for number, values in enumerate([np.int64(9), np.float32(0.1), *kept]):
                file[f"optimizer/vars/{number}"] = values
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", json.dumps(dense_settings(layers)))
            archive.write(tmp_path / "model.weights.h5", "model.weights.h5")
    else:
        names = [f"sequential_dense_{at}_{part}" for at in (3, 4) for part in ("kernel", "bias")]
        with h5py.File(save_h5(layers, path), "a") as file:
            for name, own in zip(names, range(0, len(kept), per_part), strict=True):
                file[f"optimizer_weights/x/{name}_momentum"] = kept[own]
                if per_part == 2:
                    file[f"optimizer_weights/x/{name}_velocity"] = kept[own] ** 2
    found = chain_of(read_contents(path), path).buffers
    assert list(found) == [buffer]
    for (weight, bias), (first, second) in zip(layers, found[buffer], strict=True):
        np.testing.assert_array_equal(first, weight - 1)
        np.testing.assert_array_equal(second, bias - 1)


@pytest.mark.parametrize("per_part", [1, 2])
@pytest.mark.parametrize("named", [False, True])
def test_the_moving_average_of_a_keras_model_is_read(tmp_path: Path, per_part: int, named: bool) -> None:
    """Keras 3.15 with `use_ema`: the averages of all weights come first."""
    layers, path = some_layers(), tmp_path / "a.h5"
    parts = [part for weight, bias in layers for part in (weight.T, bias)]
    names = [f"dense_{at}_{part}" for at in (3, 4) for part in ("kernel", "bias")]
    with h5py.File(save_h5(layers, path), "a") as file:
        if named:
            for name, part in zip(names, parts, strict=True):
                file[f"optimizer_weights/x/{name}_average"], file[f"optimizer_weights/x/{name}_momentum"] = (
                    part + 2,
                    part,
                )
                if per_part == 2:
                    file[f"optimizer_weights/x/{name}_velocity"] = part**2
        else:
            kept = [own for part in parts for own in (part, part**2)[:per_part]]
            for number, values in enumerate([*(part + 2 for part in parts), *kept], start=2):
                file[f"optimizer/vars/{number}"] = values
    found = chain_of(read_contents(path), path)
    assert list(found.buffers) == ["momentum_buffer" if per_part == 1 else "exp_avg"]
    assert found.average is not None
    for (weight, bias), (first, second) in zip(layers, found.average, strict=True):
        np.testing.assert_array_equal(first, weight + 2)
        np.testing.assert_array_equal(second, bias + 2)


MEAN, VARIANCE = np.arange(6.0), np.arange(1.0, 7.0) ** 2


def with_normalisation(folder: Path, layout: str, mean: object, variance: object) -> Path:
    """As Keras 3.15 writes it: variables of the layer in each layout, or numbers among its settings."""
    layers, settings = some_layers(), dense_settings(some_layers())
    own: dict[str, object] = {"name": "normalization", "axis": [-1], "mean": None, "variance": None, "invert": False}
    if layout == "settings":
        own |= {"mean": mean, "variance": variance}
    settings["config"]["layers"].insert(1, {"class_name": "Normalization", "config": own})
    if layout == "names":
        with h5py.File(save_h5(layers, folder / "a.h5"), "a") as file:
            file.attrs["model_config"] = json.dumps(settings).encode()
            for name, values in (("count", 0), ("mean", mean), ("variance", variance)):
                file[f"model_weights/normalization/normalization/{name}"] = values
        return folder / "a.h5"
    with h5py.File(folder / "a.weights.h5", "w") as file:
        for number, (weight, bias) in enumerate(layers):
            file[f"layers/dense{f'_{number}' if number else ''}/vars/0"] = weight.T
            file[f"layers/dense{f'_{number}' if number else ''}/vars/1"] = bias
        for number, values in enumerate((mean, variance, 0) if layout != "settings" else ()):
            file[f"layers/normalization/vars/{number}"] = values
    if layout == "weights":
        return folder / "a.weights.h5"
    with zipfile.ZipFile(folder / "a.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(settings))
        archive.write(folder / "a.weights.h5", "model.weights.h5")
    return folder / "a.keras"


LAYOUTS = ["archive", "names", "weights", "settings"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_normalisation_of_keras_is_a_scaler(tmp_path: Path, layout: str) -> None:
    path = with_normalisation(tmp_path, layout, MEAN.tolist(), VARIANCE.tolist())
    found = chain_of(read_contents(path), path)
    assert len(found.layers) == 2
    assert found.scaler is not None
    np.testing.assert_allclose(found.scaler.centre, MEAN)
    np.testing.assert_allclose(found.scaler.scale, np.sqrt(VARIANCE))
    if layout in ("archive", "names"):
        told = [finding.what for finding in scan(path).findings if finding.rule == "column-statistics"]
        assert told == ["centres and scales of 6 columns (Normalization)"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("mean", "variance"),
    [([1.0], [1.0]), ([1.0] * 6, [1.0] * 5), ([1.0] * 6, [-1.0] * 6), ([float("nan")] * 6, [1.0] * 6)],
)
def test_a_normalisation_of_other_numbers_is_refused(
    tmp_path: Path, layout: str, mean: list[float], variance: list[float]
) -> None:
    path = with_normalisation(tmp_path, layout, mean, variance)
    with pytest.raises(ExhumeError, match="expected"):
        chain_of(read_contents(path), path)


def test_averages_of_squares_are_left_out(tmp_path: Path) -> None:
    layers = [(abs(weight), abs(bias)) for weight, bias in some_layers()]
    path = save_keras(layers, tmp_path / "a.keras", optimiser=True)
    assert chain_of(read_contents(path), path).buffers == {}
