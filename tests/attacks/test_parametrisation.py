import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.parametrisation import LoweredRows, Parametrisation, Subspace
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
def test_lifting_keeps_norms_and_lowering_undoes_it(d: int, r: int, seed: int) -> None:
    subspace = Subspace.spanned_by(normal(d, min(r, d), seed=seed))
    coordinates, rows = normal(4, subspace.r, seed=seed + 1), normal(3, d, seed=seed + 2)
    lifted = subspace.lift(coordinates)
    torch.testing.assert_close(lifted.norm(dim=1), coordinates.norm(dim=1))
    torch.testing.assert_close(subspace.lower(lifted), coordinates)
    # the two products are adjoint
    torch.testing.assert_close((lifted[0] * rows[0]).sum(), (coordinates[0] * subspace.lower(rows)[0]).sum())


def test_the_span_is_that_of_the_columns() -> None:
    columns = normal(8, 3)
    basis = Subspace.spanned_by(columns).basis
    torch.testing.assert_close(basis.T @ basis, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(basis @ (basis.T @ columns), columns)


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (torch.cat([normal(6, 2), normal(6, 2).sum(dim=1, keepdim=True)], dim=1), "1 that the others make up"),
        (torch.zeros(6, 1), "not zero"),
        (torch.full((6, 1), torch.nan), "finite"),
        (normal(3, 4), "from 1 to d = 3"),
    ],
)
def test_columns_that_are_no_basis_are_refused(columns: Tensor, found: str) -> None:
    with pytest.raises(ExhumeError, match=found):
        Subspace.spanned_by(columns)


@given(st.integers(0, 700), st.integers(0, 700))
def test_streamed_rows_are_those_of_the_dense_product(one: int, two: int) -> None:
    rows = DrawnRows(3, 700, 12)
    subspace = Subspace.spanned_by(normal(12, 5).float())
    lowered, dense = LoweredRows(rows, subspace), hold(rows).values @ subspace.basis
    start, stop = min(one, two), max(one, two)
    torch.testing.assert_close(lowered.block(start, stop), dense[start:stop])
    torch.testing.assert_close(hold(lowered.part(start, stop)).values, dense[start:stop])
    assert (lowered.p, lowered.d) == (700, 5)


def test_features_of_the_coordinates_are_those_of_what_they_stand_for() -> None:
    rows, subspace = DrawnRows(3, 50, 12), Subspace.spanned_by(normal(12, 5))
    bias = normal(50, seed=7)
    coordinates = normal(4, 5, seed=8)
    whole = RidgeFeatures(hold(rows, dtype=torch.float64), activation("tanh"), bias)
    inside = RidgeFeatures(
        hold(LoweredRows(rows, subspace, torch.float64), dtype=torch.float64), whole.activation, bias
    )
    torch.testing.assert_close(inside(coordinates), whole(subspace.lift(coordinates)))


def test_a_subspace_is_a_parametrisation() -> None:
    assert isinstance(Subspace.spanned_by(normal(4, 2)), Parametrisation)
