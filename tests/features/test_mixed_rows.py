import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.features.mixed_rows import MixedRows
from exhume.features.rows import DrawnRows, HeldRows, hold


@given(st.floats(-3, 3), st.floats(-3, 3), st.integers(0, 600), st.integers(0, 600))
def test_blocks_are_those_of_the_dense_combination(share: float, other: float, one: int, two: int) -> None:
    first, second = DrawnRows(1, 600, 4), DrawnRows(2, 600, 4)
    mixed = MixedRows(first, share, second, other)
    start, stop = min(one, two), max(one, two)
    dense = share * hold(first).values + other * hold(second).values
    torch.testing.assert_close(mixed.block(start, stop), dense[start:stop])
    torch.testing.assert_close(hold(mixed.part(start, stop)).values, dense[start:stop])


def test_rows_that_are_mixed_stay_as_they_were() -> None:
    held = HeldRows(torch.ones(3, 2))
    MixedRows(held, 2.0, HeldRows(torch.ones(3, 2)), -1.0).block(0, 3)
    assert torch.equal(held.values, torch.ones(3, 2))


def test_layers_of_different_shapes_are_refused() -> None:
    with pytest.raises(ExhumeError, match=r"same shape, found \[3, 2\] and \[3, 4\]"):
        MixedRows(DrawnRows(1, 3, 2), 1.0, DrawnRows(1, 3, 4), 1.0)
