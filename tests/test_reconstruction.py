import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.files import read_tensors, write_tensors
from exhume.reconstruction import Certificate, Outcome, Reconstruction, load_reconstruction, save_reconstruction


def reconstruction(dtype: torch.dtype = torch.float32) -> Reconstruction:
    stream = torch.Generator().manual_seed(0)
    return Reconstruction(
        candidates=torch.randn(3, 5, generator=stream).to(dtype),
        coefficients=torch.randn(3, 2, generator=stream, dtype=torch.float64),
        method="heavy-ball",
        certificate=Certificate(Outcome.PARTIAL, 0.1 + 0.2, 40, (1.0, 0.1 + 0.2, 1e-17)),
        loss=1e-300,
        iterations=17,
        passes=35.5,
        seconds=1.23456,
        peak_memory_mb=100.25,
        seed=8,
        settings={"step_size": None, "momentum": 0.9},
    )


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ExhumeError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("unseen", [None, 1e-17])
def test_a_reconstruction_comes_back_bit_for_bit(
    tmp_path: Path, dtype: torch.dtype, outcome: Outcome, unseen: float | None
) -> None:
    certificate = Certificate(outcome, unseen, 0 if unseen is None else 3, (0.0, 1 / 3, 1.0))
    saved = replace(reconstruction(dtype), certificate=certificate)
    save_reconstruction(saved, tmp_path / "r")
    loaded = load_reconstruction(tmp_path / "r")
    for item in fields(saved):
        before, after = getattr(saved, item.name), getattr(loaded, item.name)
        if isinstance(before, Tensor):
            assert after.dtype == before.dtype
            assert torch.equal(after, before)
        else:
            assert after == before


def test_the_summary_has_the_keys_that_other_programs_rely_on() -> None:
    summary = reconstruction().summary()
    keys = "method outcome loss held_out_loss samples_found iterations passes seconds peak_memory_mb seed"
    assert set(keys.split()) <= set(summary)
    assert (summary["outcome"], summary["samples_found"], summary["held_out_rows"]) == ("partial", 3, 40)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_every_outcome_has_an_advice_of_its_own() -> None:
    assert len({outcome.advice for outcome in Outcome}) == len(Outcome) == 4
    assert "not safe" in Outcome.NOT_CONVERGED.advice


def edited(path: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], None]) -> None:
    save_reconstruction(reconstruction(), path)
    file = read_tensors(path, "reconstruction")
    change(file.meta, file.tensors)
    save_file(file.tensors, path, metadata={"exhume": json.dumps(file.meta)})


@pytest.mark.parametrize("key", ["certificate", "method", "loss", "iterations", "seed"])
def test_a_reconstruction_that_lacks_something_is_one_line(tmp_path: Path, key: str) -> None:
    edited(tmp_path / "r", lambda meta, tensors: meta.pop(key))
    assert key in refusal(lambda: load_reconstruction(tmp_path / "r"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("certificate", None),
        ("certificate", {"outcome": "recovered"}),
        ("certificate", {"outcome": "perfect", "held_out_loss": None, "held_out_rows": 0, "confidence": [1.0]}),
        ("certificate", {"outcome": "partial", "held_out_loss": None, "held_out_rows": 0}),
        ("certificate", {"outcome": "partial", "held_out_loss": None, "held_out_rows": 0, "confidence": None}),
        ("certificate", {"outcome": "partial", "held_out_loss": None, "held_out_rows": 0, "confidence": ["high"]}),
        ("surprise", 1),
    ],
)
def test_a_reconstruction_with_a_field_that_makes_no_sense_is_one_line(tmp_path: Path, key: str, value: object) -> None:
    edited(tmp_path / "r", lambda meta, tensors: meta.update({key: value}))
    refusal(lambda: load_reconstruction(tmp_path / "r"))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("candidates", torch.ones(4, 5)),
        ("candidates", torch.ones(3)),
        ("candidates", torch.ones(3, 5, dtype=torch.int64)),
        ("candidates", torch.full((3, 5), torch.nan)),
        ("coefficients", torch.ones(2, 2)),
        ("coefficients", torch.ones(3)),
        ("coefficients", torch.full((3, 1), torch.inf)),
    ],
)
def test_candidates_and_coefficients_that_do_not_fit_are_one_line(tmp_path: Path, name: str, tensor: Tensor) -> None:
    edited(tmp_path / "r", lambda meta, tensors: tensors.update({name: tensor}))
    assert name in refusal(lambda: load_reconstruction(tmp_path / "r"))


@pytest.mark.parametrize("name", ["candidates", "coefficients"])
def test_a_missing_tensor_is_one_line(tmp_path: Path, name: str) -> None:
    def drop(meta: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    edited(tmp_path / "r", drop)
    assert f"found none named {name}" in refusal(lambda: load_reconstruction(tmp_path / "r"))


def test_a_missing_or_truncated_file_another_kind_or_schema_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "r"
    assert "no such file" in refusal(lambda: load_reconstruction(path))
    save_reconstruction(reconstruction(), path)
    path.write_bytes(path.read_bytes()[:-1])
    refusal(lambda: load_reconstruction(path))
    write_tensors(path, "observation", {"weights": torch.ones(1, 1)}, {})
    assert "found 'observation'" in refusal(lambda: load_reconstruction(path))
    edited(path, lambda meta, tensors: meta.update(schema=2))
    assert "schema 1" in refusal(lambda: load_reconstruction(path))


def test_a_reconstruction_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refusal(lambda: save_reconstruction(reconstruction(), tmp_path / "file" / "r"))
