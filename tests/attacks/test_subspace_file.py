from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from exhume.attacks.subspace.file import read_subspace
from exhume.errors import ExhumeError

BASIS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("matrix", [BASIS, BASIS.T, BASIS.double()])
def test_columns_or_rows_span_the_same_subspace(tmp_path: Path, matrix: Tensor) -> None:
    save_file({"any name": matrix.contiguous()}, tmp_path / "basis.safetensors")
    basis = read_subspace(tmp_path / "basis.safetensors", 7)
    assert basis.shape == (7, 3)
    torch.testing.assert_close(basis.T @ basis, torch.eye(3).to(basis))
    exact = basis.to(BASIS)
    torch.testing.assert_close(exact @ (exact.T @ BASIS), BASIS)


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        ({"a": torch.ones(6, 3)}, r"of at most d = 7 vectors of 7 numbers each in .*, found shape \[6, 3\]"),
        ({"a": torch.ones(7, 9)}, r"found shape \[7, 9\]"),
        ({"a": torch.ones(7)}, r"found float32 of shape \[7\]"),
        ({"a": torch.ones(7, 2, dtype=torch.int64)}, "found int64"),
        ({"a": torch.ones(7, 2)}, "2 independent columns .* others make up"),
        ({"a": torch.full((7, 1), torch.nan)}, "finite numbers"),
        ({"a": BASIS, "b": BASIS}, "one matrix, the basis of a subspace, in .*, found a, b"),
    ],
)
def test_what_is_no_basis_is_refused_in_one_line(tmp_path: Path, tensors: dict[str, Tensor], found: str) -> None:
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, tmp_path / "basis.safetensors")
    with pytest.raises(ExhumeError, match=found) as refused:
        read_subspace(tmp_path / "basis.safetensors", 7)
    assert "\n" not in str(refused.value)


def test_files_that_are_missing_or_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(ExhumeError, match="whole safetensors file"):
        read_subspace(tmp_path / "text", 7)
    with pytest.raises(ExhumeError, match="first-layer, moments or a safetensors file"):
        read_subspace(tmp_path / "none", 7)
