"""A subspace that somebody knows, in a safetensors file: one matrix, its columns (or rows) a basis."""

from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.errors import ExhumeError
from exhume.files import read_any_tensors


def read_subspace(path: Path, d: int) -> Float[Tensor, "d r"]:
    """An orthonormal basis of the span in the file: d × r, or r × d with r < d."""
    tensor = _only_matrix(path)
    rows, columns = tensor.shape
    if d not in (rows, columns) or max(rows, columns) != d or min(rows, columns) < 1:
        raise ExhumeError(
            f"expected a basis of at most d = {d} vectors of {d} numbers each in {path}, found shape {[rows, columns]}"
        )
    try:
        return Subspace.spanned_by(tensor if rows == d else tensor.T).basis
    except ExhumeError as problem:
        raise ExhumeError(f"{problem} (in {path})") from problem


def _only_matrix(path: Path) -> Float[Tensor, "rows columns"]:
    tensors = read_any_tensors(
        path, f"expected first-layer, moments or a safetensors file as the subspace, found no file {path}"
    )
    if len(tensors) != 1:
        found = ", ".join(sorted(tensors)[:5]) or "none"
        raise ExhumeError(f"expected one matrix, the basis of a subspace, in {path}, found {found}")
    tensor = next(iter(tensors.values()))
    if tensor.ndim != 2 or not tensor.is_floating_point():
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ExhumeError(f"expected a floating-point matrix in {path}, found {kind} of shape {list(tensor.shape)}")
    if not tensor.isfinite().all():
        raise ExhumeError(f"expected finite numbers in {path}, found NaN or infinite ones")
    return tensor
