from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from exhume.checkpoint_file import check_whole, write_checkpoint
from exhume.files import TensorFile, read_tensors

META = {"settings": {"seed": 0}, "numbers": {"iteration": 3, "x": 0.1}}


@pytest.fixture
def file(tmp_path: Path) -> TensorFile:
    tensors = {
        "state.b": torch.arange(6.0).reshape(2, 3),
        "state.a": torch.tensor(3),
        "c": torch.tensor([1.5, 2], dtype=torch.bfloat16),
    }
    write_checkpoint(tmp_path / "a.safetensors", "checkpoint", tensors, META)
    return read_tensors(tmp_path / "a.safetensors", "checkpoint")


def test_the_digest_is_the_one_that_earlier_versions_wrote(file: TensorFile) -> None:
    assert file.meta["digest"] == "25c2f1cbfd61e1da79ae2d319411f82a"
    check_whole(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.tensors.update({"state.a": torch.tensor(4)}),
        lambda file: file.tensors.update({"state.b": file.tensors["state.b"].reshape(3, 2)}),
        lambda file: file.tensors.update({"c": file.tensors["c"].float()}),
        lambda file: file.tensors.pop("c"),
        lambda file: file.meta["numbers"].update(iteration=4),
        lambda file: file.meta.update(further=1),
        lambda file: file.meta.update(digest=None),
    ],
)
def test_any_change_is_seen(file: TensorFile, change: Callable[[TensorFile], object]) -> None:
    change(file)
    with pytest.raises(ValueError, match="not those that were saved"):
        check_whole(file)


def test_one_number_that_was_cut_out_of_a_matrix_is_kept(tmp_path: Path) -> None:
    """It counts as contiguous and keeps its stride: a checkpoint of dense-spans after its first start."""
    losses = torch.tensor([[0.5, 1.0]], dtype=torch.float64)[:, 0].contiguous()
    assert losses.stride() == (2,), "else it proves nothing"
    write_checkpoint(tmp_path / "a.safetensors", "checkpoint", {"losses": losses}, META)
    check_whole(read_tensors(tmp_path / "a.safetensors", "checkpoint"))


def test_files_of_the_first_form_have_no_digest(file: TensorFile) -> None:
    file.meta.pop("digest")
    file.meta["numbers"]["iteration"] = 4
    check_whole(file)
