import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from exhume.activations import ACTIVATIONS, activation
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, MappedRows, Rows, hold, write_rows
from exhume.features.selected_rows import SelectedRows
from exhume.files import read_tensors
from exhume.observation import Knowledge, Observation, load_observation, save_observation

P, D = 300, 12


def observation_of(
    rows: Rows, *, name: str = "relu", bias: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> Observation:
    weights = torch.randn(2, rows.p, generator=torch.Generator().manual_seed(1)).to(dtype)
    return Observation(RidgeFeatures(rows, activation(name), bias), weights, Knowledge(4, 12**0.5), (3, 2, 2))


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ExhumeError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_same(one: Observation, two: Observation) -> None:
    assert one.weights.dtype == two.weights.dtype
    assert torch.equal(one.weights, two.weights)
    assert (one.knowledge, one.image_shape) == (two.knowledge, two.image_shape)
    assert (one.ridge.activation, one.ridge.trained) == (two.ridge.activation, two.ridge.trained)
    assert torch.equal(one.ridge.rows.block(0, one.ridge.p), two.ridge.rows.block(0, two.ridge.p))
    if one.ridge.bias is None:
        assert two.ridge.bias is None
    else:
        assert two.ridge.bias is not None
        assert torch.equal(one.ridge.bias, two.ridge.bias)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_of_every_precision_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    saved = observation_of(DrawnRows(3, P, D), dtype=dtype)
    save_observation(saved, tmp_path / "o")
    assert_same(load_observation(tmp_path / "o"), saved)


@pytest.mark.parametrize("name", ACTIVATIONS.names())
def test_every_activation_and_a_bias_come_back(tmp_path: Path, name: str) -> None:
    saved = observation_of(DrawnRows(3, P, D), name=name, bias=torch.linspace(-1, 1, P))
    save_observation(saved, tmp_path / "o")
    assert_same(load_observation(tmp_path / "o"), saved)


@pytest.mark.parametrize(
    "knowledge",
    [
        Knowledge(),
        Knowledge(samples=7),
        Knowledge(norm=0.1 + 0.2),
        Knowledge(initial="known", initial_body=True),
        Knowledge(initial="seed"),
        Knowledge(initial="distribution"),
    ],
)
def test_what_is_not_known_stays_unknown(tmp_path: Path, knowledge: Knowledge) -> None:
    saved = replace(observation_of(DrawnRows(3, P, D)), knowledge=knowledge, image_shape=None)
    save_observation(saved, tmp_path / "o")
    assert load_observation(tmp_path / "o").knowledge == knowledge
    assert load_observation(tmp_path / "o").image_shape is None


def test_drawn_rows_stay_a_seed_and_so_do_their_parts(tmp_path: Path) -> None:
    saved = observation_of(DrawnRows(3, 2 * P, D).part(100, 100 + P))
    save_observation(saved, tmp_path / "o")
    assert [path.name for path in tmp_path.iterdir()] == ["o"]
    assert load_observation(tmp_path / "o").ridge.rows == DrawnRows(3, P, D, 100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_rows_in_memory_go_to_a_file_beside_it_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    saved = observation_of(hold(DrawnRows(3, P, D), dtype=dtype))
    save_observation(saved, tmp_path / "o")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features.safetensors", "o"]
    assert_same(load_observation(tmp_path / "o"), saved)


@pytest.mark.parametrize("trained", [False, True])
def test_whether_the_rows_were_trained_comes_back(tmp_path: Path, trained: bool) -> None:
    fixed = observation_of(hold(DrawnRows(3, P, D)))
    saved = replace(fixed, features=replace(fixed.ridge, trained=trained))
    save_observation(saved, tmp_path / "o")
    assert_same(load_observation(tmp_path / "o"), saved)


def test_a_folder_with_a_features_file_can_be_moved(tmp_path: Path) -> None:
    saved = observation_of(hold(DrawnRows(3, P, D)))
    save_observation(saved, tmp_path / "a" / "o")
    (tmp_path / "a").rename(tmp_path / "b")
    assert_same(load_observation(tmp_path / "b" / "o"), saved)


def test_rows_in_a_file_of_the_same_folder_are_not_written_again(tmp_path: Path) -> None:
    mapped = write_rows(DrawnRows(3, P, D), tmp_path / "v.safetensors")
    before = mapped.path.stat()
    save_observation(observation_of(mapped), tmp_path / "o")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "v.safetensors"]
    assert (mapped.path.stat().st_mtime_ns, mapped.path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert load_observation(tmp_path / "o").ridge.rows == mapped


def test_a_part_of_the_rows_in_a_file_comes_back_and_the_file_stays_whole(tmp_path: Path) -> None:
    mapped = write_rows(DrawnRows(3, 2 * P, D), tmp_path / "features.safetensors")
    saved = observation_of(mapped.part(50, 2 * P).part(50, 50 + P))
    save_observation(saved, tmp_path / "o")
    assert_same(load_observation(tmp_path / "o"), saved)
    assert MappedRows.open(mapped.path) == mapped


def test_the_same_folder_spelled_otherwise_is_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = write_rows(DrawnRows(3, P, D), tmp_path / "v.safetensors")
    monkeypatch.chdir(tmp_path)
    save_observation(observation_of(mapped), Path("o"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "v.safetensors"]


def test_rows_in_a_file_elsewhere_are_brought_along(tmp_path: Path) -> None:
    saved = observation_of(write_rows(DrawnRows(3, P, D), tmp_path / "elsewhere" / "v.safetensors"))
    save_observation(saved, tmp_path / "run" / "o")
    (tmp_path / "elsewhere" / "v.safetensors").unlink()
    restored = load_observation(tmp_path / "run" / "o").ridge.rows
    assert torch.equal(restored.block(0, P), DrawnRows(3, P, D).block(0, P))


def test_telling_the_number_of_samples_changes_nothing_else() -> None:
    observation = observation_of(DrawnRows(3, P, D))
    assert observation.knowing(None).knowledge == Knowledge(None, 12**0.5)
    assert observation.knowing(9).knowledge == Knowledge(9, 12**0.5)
    assert_same(observation.knowing(9).knowing(4), observation)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_and_biases_that_are_not_finite_are_refused(bad: float) -> None:
    observation = observation_of(DrawnRows(3, P, D))
    weights, bias = observation.weights.clone(), torch.zeros(P)
    weights[1, 5] = bias[7] = bad
    assert "found 1 that" in refusal(lambda: replace(observation, weights=weights))
    features = replace(observation.ridge, bias=bias)
    assert "finite bias" in refusal(lambda: replace(observation, features=features))


def test_weights_or_a_bias_of_another_length_than_the_features_are_refused() -> None:
    observation = observation_of(DrawnRows(3, P, D))
    assert "p = 300" in refusal(lambda: replace(observation, weights=torch.ones(2, P + 1)))
    for length in (1, P - 1, P + 1):
        features = replace(observation.ridge, bias=torch.zeros(length))
        assert f"[{length}]" in refusal(lambda features=features: replace(observation, features=features))  # type: ignore[misc]


@pytest.mark.parametrize("samples", [0, -3])
def test_an_impossible_number_of_samples_is_a_wrong_request(samples: int) -> None:
    with pytest.raises(UsageError, match="at least 1 sample"):
        observation_of(DrawnRows(3, P, D)).knowing(samples)


def edited(path: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], None]) -> None:
    """Saves an observation whose metadata and tensors somebody has changed."""
    save_observation(observation_of(DrawnRows(3, P, D), bias=torch.zeros(P)), path)
    file = read_tensors(path, "observation")
    change(file.meta, file.tensors)
    save_file(file.tensors, path, metadata={"exhume": json.dumps(file.meta)})


def test_an_edit_that_changes_nothing_still_loads(tmp_path: Path) -> None:
    edited(tmp_path / "o", lambda meta, tensors: None)
    assert_same(load_observation(tmp_path / "o"), observation_of(DrawnRows(3, P, D), bias=torch.zeros(P)))


def test_a_file_of_the_first_form_still_loads(tmp_path: Path) -> None:
    edited(tmp_path / "o", lambda meta, tensors: meta["knowledge"].pop("initial_body"))
    assert load_observation(tmp_path / "o").knowledge == Knowledge(4, 12**0.5)


@pytest.mark.parametrize("mapped", [False, True])
def test_selected_rows_are_written_beside_it_and_nothing_else_of_the_matrix(tmp_path: Path, mapped: bool) -> None:
    kept, drawn = torch.tensor([2, 3, 200, 299]), DrawnRows(3, P, D)
    whole = write_rows(drawn, tmp_path / "features.safetensors") if mapped else drawn
    save_observation(observation_of(SelectedRows(whole, kept)), tmp_path / "o")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features.safetensors", "o"]
    restored = load_observation(tmp_path / "o").ridge.rows
    assert restored.p == 4
    assert torch.equal(restored.block(0, 4), drawn.block(0, P)[kept])


def test_code_is_not_named_for_features_that_need_none(tmp_path: Path) -> None:
    save_observation(observation_of(DrawnRows(3, P, D)), tmp_path / "o")
    assert "expected no --model" in refusal(lambda: load_observation(tmp_path / "o", "my.models:small"))


@pytest.mark.parametrize("key", ["rows", "activation", "knowledge", "image_shape"])
def test_an_observation_that_lacks_something_is_one_line(tmp_path: Path, key: str) -> None:
    edited(tmp_path / "o", lambda meta, tensors: meta.pop(key))
    assert key in refusal(lambda: load_observation(tmp_path / "o"))


TOLD = {"samples": 4, "norm": 3.5, "initial": "zero"}
DRAWN = {"kind": "drawn", "seed": 3, "p": P, "d": D, "first": 0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("rows", {**DRAWN, name: bad})
            for name in ("seed", "p", "d", "first")
            for bad in (-1, 0.5, "3", None, 2**64)
        ),
        *(("rows", {key: value for key, value in DRAWN.items() if key != name}) for name in DRAWN),
        ("rows", {**DRAWN, "p": P + 1}),
        ("rows", {**DRAWN, "d": 0}),
        ("rows", 3),
        ("rows", None),
        ("activation", "step\nfunction"),
        ("activation", ["relu"]),
        *(("knowledge", {**TOLD, "samples": bad}) for bad in (-1, 0, 2.5, "4", True)),
        *(("knowledge", {**TOLD, "norm": bad}) for bad in (0.0, -1.0, "long", [2.0])),
        ("knowledge", {**TOLD, "initial": "guessed"}),
        ("knowledge", {**TOLD, "initial": ["zero"]}),
        ("knowledge", {**TOLD, "initial_body": 1}),
        ("knowledge", {**TOLD, "labels": [1, 2]}),
        ("knowledge", {}),
        ("knowledge", None),
        ("image_shape", [3, 2]),
        ("image_shape", [3, 2, 3]),
        ("image_shape", [3, -2, -2]),
        ("image_shape", [3.0, 2, 2]),
        ("image_shape", 12),
        ("image_shape", "abc"),
    ],
)
def test_an_observation_with_a_field_that_makes_no_sense_is_one_line(tmp_path: Path, key: str, value: object) -> None:
    edited(tmp_path / "o", lambda meta, tensors: meta.update({key: value}))
    refusal(lambda: load_observation(tmp_path / "o"))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("weights", torch.ones(P)),
        ("weights", torch.ones(1, 2, P)),
        ("weights", torch.ones(1, P, dtype=torch.int64)),
        ("weights", torch.ones(1, P - 1)),
        ("weights", torch.full((1, P), torch.nan)),
        ("bias", torch.ones(P, 1)),
        ("bias", torch.ones(1)),
        ("bias", torch.ones(P, dtype=torch.int64)),
        ("bias", torch.full((P,), torch.inf)),
    ],
)
def test_an_observation_with_tensors_that_do_not_fit_is_one_line(tmp_path: Path, name: str, tensor: Tensor) -> None:
    edited(tmp_path / "o", lambda meta, tensors: tensors.update({name: tensor}))
    refusal(lambda: load_observation(tmp_path / "o"))


def test_an_observation_without_weights_is_one_line(tmp_path: Path) -> None:
    def drop(meta: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        del tensors["weights"]

    edited(tmp_path / "o", drop)
    assert "found none named weights" in refusal(lambda: load_observation(tmp_path / "o"))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/etc/passwd", "../v", "a/v", "sub/../v", "v/", "v\0", "v\nw", "missing", "o", 5, None]
)
def test_no_name_of_a_features_file_leads_out_of_the_folder(tmp_path: Path, name: object) -> None:
    (tmp_path / "run" / "a").mkdir(parents=True)
    for place in ("v", "run/a/v"):
        write_rows(DrawnRows(3, P, D), tmp_path / place)
    rows = {"kind": "file", "name": name, "p": P, "first": 0}
    edited(tmp_path / "run" / "o", lambda meta, tensors: meta.update(rows=rows))
    refusal(lambda: load_observation(tmp_path / "run" / "o"))


@pytest.mark.parametrize(("first", "p"), [(1, P), (0, P + 1), (-1, P), (0, 0), (0.0, P)])
def test_rows_that_the_features_file_does_not_have_are_one_line(tmp_path: Path, first: object, p: object) -> None:
    write_rows(DrawnRows(3, P, D), tmp_path / "v")
    rows = {"kind": "file", "name": "v", "p": p, "first": first}
    edited(tmp_path / "o", lambda meta, tensors: meta.update(rows=rows))
    refusal(lambda: load_observation(tmp_path / "o"))


def test_a_truncated_features_file_is_one_line(tmp_path: Path) -> None:
    save_observation(observation_of(hold(DrawnRows(3, P, D))), tmp_path / "o")
    path = tmp_path / "features.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert "cut off" in refusal(lambda: load_observation(tmp_path / "o"))
    path.unlink()
    assert "No such file" in refusal(lambda: load_observation(tmp_path / "o"))


def test_a_missing_or_truncated_observation_or_another_kind_of_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "o"
    assert "no such file" in refusal(lambda: load_observation(path))
    save_observation(observation_of(DrawnRows(3, P, D)), path)
    path.write_bytes(path.read_bytes()[:-1])
    refusal(lambda: load_observation(path))
    save_file({"weights": torch.ones(1, P)}, path)
    assert "did not write" in refusal(lambda: load_observation(path))


def test_an_observation_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for rows in (DrawnRows(3, P, D), hold(DrawnRows(3, P, D))):
        refusal(lambda rows=rows: save_observation(observation_of(rows), tmp_path / "file" / "o"))  # type: ignore[misc]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
