"""Records of users: image folders and safetensors files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from exhume.data.config import DataConfig
from exhume.data.dataset import Preparation, prepare
from exhume.data.load import load
from exhume.data.records import load_records, prepare_alike
from exhume.errors import ExhumeError, UsageError

SHAPE = (1, 4, 4)
PLAIN = Preparation(torch.zeros(1), torch.ones(1), torch.ones(0), SHAPE, "none", "keep")


def write_images(folder: Path, *sizes: tuple[int, int], mode: str = "L") -> None:
    folder.mkdir(parents=True)
    for index, size in enumerate(sizes):
        channels = () if mode == "L" else (3,)
        values = np.random.default_rng(index).integers(0, 256, (*size, *channels), dtype=np.uint8)
        Image.fromarray(values).save(folder / f"{index}.png")


def test_images_go_through_the_preparation_of_the_training_data() -> None:
    data = load(DataConfig.parse(name="faces", samples=6, side=5))
    pixels = load(DataConfig.parse(name="faces", samples=6, side=5, standardise="none", norm="keep")).inputs
    again = prepare_alike(pixels.reshape(-1, 1, 5, 5), data.preparation)
    assert torch.allclose(again, data.inputs, atol=1e-5)
    kept = prepare(pixels.reshape(-1, 1, 5, 5), "channels", "keep")
    assert torch.allclose(prepare_alike(pixels.reshape(-1, 1, 5, 5), kept.preparation), kept.rows, atol=1e-5)


def test_a_folder_is_read_with_its_subfolders_and_brought_to_the_models_shape(tmp_path: Path) -> None:
    write_images(tmp_path / "a" / "b", (8, 8), (4, 4))
    write_images(tmp_path / "a" / "c", (4, 4), mode="RGB")
    found = load_records(tmp_path / "a", SHAPE, PLAIN)
    assert found.names == ("b/0.png", "b/1.png", "c/0.png")
    assert found.rows.shape == (3, 16)
    assert found.rows.dtype == torch.float32
    assert load_records(tmp_path / "a", (3, 4, 4), PLAIN).rows.shape == (3, 48)


def test_images_that_do_not_fit_and_folders_without_any_are_named(tmp_path: Path) -> None:
    write_images(tmp_path / "a", (6, 6))
    with pytest.raises(UsageError, match=r"images of 1x4x4 .* found 1x6x6 in .*0.png"):
        load_records(tmp_path / "a", SHAPE, PLAIN)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="found none"):
        load_records(tmp_path / "empty", SHAPE, PLAIN)
    with pytest.raises(UsageError, match="a model that reads images"):
        load_records(tmp_path / "a")


@pytest.mark.parametrize(
    ("tensors", "columns"),
    [
        ({"embeddings": torch.ones(2, 7), "other": torch.ones(3, 3)}, 7),
        ({"inputs": torch.ones(2, 1, 4, 4)}, 16),
        ({"whatever": torch.ones(2, 5), "labels": torch.ones(2)}, 5),
    ],
)
def test_rows_of_a_file_are_found_by_name_or_alone(tmp_path: Path, tensors: dict[str, Tensor], columns: int) -> None:
    save_file(tensors, tmp_path / "a.safetensors")
    found = load_records(tmp_path / "a.safetensors")
    assert found.rows.shape == (2, columns)
    assert found.names == ("0", "1")
    assert found.members is None


def test_a_file_may_mark_its_members(tmp_path: Path) -> None:
    save_file({"inputs": torch.ones(3, 2), "member": torch.tensor([0, 1, 1])}, tmp_path / "a.safetensors")
    members = load_records(tmp_path / "a.safetensors").members
    assert members is not None
    assert members.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("tensors", "complaint"),
    [
        ({"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, "found a, b"),
        ({"inputs": torch.ones(2, 2, dtype=torch.int64)}, "floating point"),
        ({"inputs": torch.ones(2, 2), "member": torch.ones(3)}, "one member per row"),
    ],
)
def test_files_without_usable_rows_are_refused(tmp_path: Path, tensors: dict[str, Tensor], complaint: str) -> None:
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(ExhumeError, match=complaint):
        load_records(tmp_path / "a.safetensors")


def test_missing_damaged_and_foreign_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    (tmp_path / "rows.joblib").write_bytes(b"nothing")
    for name, complaint in (("none.safetensors", "no such file"), ("broken.safetensors", "whole safetensors")):
        with pytest.raises(ExhumeError, match=complaint):
            load_records(tmp_path / name)
    with pytest.raises(UsageError, match="a file of another kind"):
        load_records(tmp_path / "rows.joblib")
    with pytest.raises(UsageError, match="no such file or folder"):
        load_records(tmp_path / "nowhere")
