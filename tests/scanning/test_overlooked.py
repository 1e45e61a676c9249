"""Training data where it is easily overlooked: a scan finds it, or says what it could not read, and never *no*."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from sklearn.cluster import HDBSCAN
from sklearn.preprocessing import SplineTransformer

from exhume.scanning.finders import notebooks
from exhume.scanning.finding import Finding
from exhume.scanning.scan import scan
from published_files import fitted, iris, save_skops

X, _ = iris()
ROWS = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)


def found_in(path: Path) -> dict[str, Finding]:
    return {finding.rule: finding for finding in scan(path).findings}


def notebook(html: str) -> str:
    output = {"output_type": "display_data", "data": {"text/html": [html], "image/png": "x"}}
    return json.dumps({"cells": [{"cell_type": "code", "outputs": [output]}]})


def test_a_notebook_above_the_limit_is_searched_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.formats.json_file.LARGEST_JSON", 100)
    monkeypatch.setattr(notebooks, "BLOCK", 7)  # signs lie across blocks, and count once
    monkeypatch.setattr(notebooks, "LONGEST_SIGN", 30)
    (tmp_path / "a.ipynb").write_text(notebook("<table border>" + "x" * 200))
    done = scan(tmp_path)
    assert [finding.what for finding in done.findings] == [
        "a notebook with 1 outputs, 1 pictures and 1 tables among them"
    ]
    assert done.answer.value == "yes"
    assert "expected at most 100 bytes" in done.unread[0].reason


@pytest.mark.parametrize("name", ["a.ipynb", "config.json", "added_tokens.json"])
def test_json_that_is_too_deep_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"cells": ' + "[" * 200_000 + "]" * 200_000 + "}")
    done = scan(tmp_path)
    assert done.answer.value == "unknown"
    assert [item.name for item in done.unread] == [name]


def test_unread_settings_hide_no_first_state(tmp_path: Path) -> None:
    for name in ("init", "final"):
        save_file({"fc.weight": torch.ones(2, 4), "fc.bias": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    (tmp_path / "config.json").write_text("[" * 200_000)
    assert "initial-weights" in found_in(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "train.json",
        "train.txt",
        "samples.txt",
        "training_data.xml",
        "eval_predictions.json",
        "chroma.sqlite3",
        "faiss.index",
        "store.faiss",
    ],
)
def test_data_under_general_suffixes_is_found_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    assert set(found_in(tmp_path)) == {"packed-along"}


@pytest.mark.parametrize(
    "name",
    ["requirements.txt", "license.txt", "dataset_info.json", "train_config.json", "training_args.json", "model.index"],
)
def test_other_texts_are_no_data(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    assert scan(tmp_path).answer.value == "no"


def test_the_training_set_of_hdbscan_is_listed(tmp_path: Path) -> None:
    finding = found_in(save_skops(HDBSCAN(copy=True).fit(X), tmp_path / "a.skops"))["stored-neighbours"]
    assert finding.rows is not None
    np.testing.assert_array_equal(finding.rows.read(), X)
    assert finding.rows.numbers == tuple(range(len(X)))


@pytest.mark.parametrize("knots", ["uniform", "quantile", np.linspace(0, 8, 3)[:, None] * np.ones(4)])
def test_the_end_knots_of_splines_are_extremes(tmp_path: Path, knots: Any) -> None:
    path = save_skops(fitted(SplineTransformer(n_knots=3, knots=knots)), tmp_path / "a.skops")
    found = found_in(path)
    assert ("quantiles" in found) == isinstance(knots, str)
    if found:
        assert found["quantiles"].what.startswith("8 values")


@pytest.mark.parametrize(
    "name",
    ["train_inputs.0", "support_set", "replay_buffer.obs", "variational_strategy.inducing_points", "memory_bank"],
)
def test_stores_of_records_are_known_by_any_part_of_their_name(tmp_path: Path, name: str) -> None:
    torch.save({name: torch.from_numpy(ROWS)}, tmp_path / "a.pt")
    finding = found_in(tmp_path)["data-array"]
    assert finding.rows is not None
    np.testing.assert_array_equal(finding.rows.read(), ROWS)
    assert finding.certainty.value == ("possible" if "inducing" in name else "likely")


@pytest.mark.parametrize(
    "name",
    ["support.conv.kernel", "memory_bank.net.kernel", "features.0.weight", "encoder.0", "replay_buffer.net.bias"],
)
def test_weights_of_a_store_are_no_records(tmp_path: Path, name: str) -> None:
    torch.save({name: torch.from_numpy(ROWS)}, tmp_path / "a.pt")
    assert "data-array" not in found_in(tmp_path)


def constant(name: str = "x_train") -> Any:
    return helper.make_tensor(name, TensorProto.FLOAT, ROWS.shape, ROWS.tobytes(), raw=True)


def told(name: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ROWS.shape)


def in_a_constant() -> Any:
    node = helper.make_node("Constant", [], ["x_train"], value=constant(""))
    return helper.make_model(helper.make_graph([node], "g", [], [told("x_train")]))


def in_a_branch() -> Any:
    inside = [
        helper.make_graph([helper.make_node("Identity", ["x_train"], ["o"])], kind, [], [told("o")], [constant()])
        for kind in ("then", "else")
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=inside[0], else_branch=inside[1])
    asked = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return helper.make_model(helper.make_graph([node], "g", [asked], [told("y")]))


def in_a_function() -> Any:
    made = helper.make_node("Constant", [], ["b"], value=constant())
    function = helper.make_function("own", "F", ["a"], ["b"], [made], [helper.make_opsetid("", 17)])
    node = helper.make_node("F", ["a"], ["b"], domain="own")
    return helper.make_model(helper.make_graph([node], "g", [], [told("b")]), functions=[function])


@pytest.mark.parametrize("make", [in_a_constant, in_a_branch, in_a_function], ids=lambda make: make.__name__)
def test_arrays_of_onnx_are_found_wherever_they_are(tmp_path: Path, make: Any) -> None:
    onnx.save(make(), str(tmp_path / "a.onnx"))
    found = [finding for finding in scan(tmp_path).findings if finding.rule == "data-array"]
    assert len(found) == (2 if make is in_a_branch else 1)
    for finding in found:
        assert finding.rows is not None
        np.testing.assert_array_equal(finding.rows.read(), ROWS)


def test_arrays_of_onnx_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.formats.onnx_file.MOST_ARRAYS", 1)
    onnx.save(in_a_branch(), str(tmp_path / "a.onnx"))
    assert "at most 1 arrays" in scan(tmp_path).unread[0].reason
