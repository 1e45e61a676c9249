"""Heads that come alone, in a file."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.experiments.head_file import read_head


@pytest.mark.parametrize("prefix", ["", "model.fc."])
def test_a_head_is_found_by_its_name_and_its_bias_becomes_a_column(tmp_path: Path, prefix: str) -> None:
    tensors = {f"{prefix}weight": torch.ones(2, 3), f"{prefix}bias": torch.tensor([5.0, 6.0])}
    save_file(tensors, tmp_path / "head.safetensors")
    probe = read_head(tmp_path / "head.safetensors")
    assert probe.constant
    assert probe.change.tolist() == [[1, 1, 1, 5], [1, 1, 1, 6]]
    assert probe.head is probe.change


def test_the_initial_head_is_taken_off(tmp_path: Path) -> None:
    save_file({"weight": torch.full((2, 3), 4.0)}, tmp_path / "head.safetensors")
    save_file({"weight": torch.ones(2, 3)}, tmp_path / "start.safetensors")
    probe = read_head(tmp_path / "head.safetensors", tmp_path / "start.safetensors")
    assert (float(probe.change.min()), float(probe.change.max())) == (3, 3)
    assert probe.head is not None
    assert float(probe.head.min()) == 4
    assert not probe.constant
    save_file({"weight": torch.ones(2, 4)}, tmp_path / "start.safetensors")
    with pytest.raises(ExhumeError, match=r"shape \[2, 3\] .* found \[2, 4\]"):
        read_head(tmp_path / "head.safetensors", tmp_path / "start.safetensors")


@pytest.mark.parametrize(
    ("tensors", "complaint"),
    [
        ({"a.weight": torch.ones(2, 3), "b.weight": torch.ones(2, 3)}, "found a.weight, b.weight"),
        ({"weight": torch.ones(3)}, "one k x h tensor"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(3)}, "one bias per output"),
        ({"weight": torch.full((1, 2), torch.inf)}, "finite"),
    ],
)
def test_files_without_one_usable_head_are_refused(tmp_path: Path, tensors: dict[str, Tensor], complaint: str) -> None:
    save_file(tensors, tmp_path / "head.safetensors")
    with pytest.raises(ExhumeError, match=complaint):
        read_head(tmp_path / "head.safetensors")


def test_a_missing_and_a_damaged_file_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="no such file"):
        read_head(tmp_path / "head.safetensors")
    (tmp_path / "head.safetensors").write_bytes(b"{}")
    with pytest.raises(ExhumeError, match="whole safetensors"):
        read_head(tmp_path / "head.safetensors")
