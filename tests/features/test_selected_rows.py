from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.features.rows import DrawnRows, HeldRows, Rows, hold, write_rows
from exhume.features.selected_rows import SelectedRows

P, D = 700, 3
WHOLE = DrawnRows(seed=3, p=P, d=D)
HELD = hold(WHOLE)


@settings(max_examples=50)
@given(
    chosen=st.sets(st.integers(0, P - 1), min_size=1), cut=st.tuples(st.integers(0, P), st.integers(0, P)).map(sorted)
)
def test_blocks_and_parts_are_those_of_the_picked_matrix(chosen: set[int], cut: list[int]) -> None:
    index = torch.tensor(sorted(chosen))
    expected = HELD.values[index]
    start, stop = (min(end, len(index)) for end in cut)
    for whole in (WHOLE, HELD):
        rows = SelectedRows(whole, index)
        assert isinstance(rows, Rows)
        assert (rows.p, rows.d) == expected.shape
        assert torch.equal(rows.block(start, stop), expected[start:stop])
        part = rows.part(start, stop)
        assert torch.equal(part.block(0, part.p), expected[start:stop])


def test_a_selection_is_written_and_read_like_any_other_rows(tmp_path: Path) -> None:
    index = torch.tensor([0, 5, 300, 699])
    written = write_rows(SelectedRows(write_rows(WHOLE, tmp_path / "whole"), index), tmp_path / "v")
    assert torch.equal(hold(written).values, HELD.values[index])


def test_rows_far_apart_are_read_in_stretches_of_a_block() -> None:
    read = []
    values = torch.arange(10_000.0)[:, None]

    class Watched(HeldRows):
        def block(self, start: int, stop: int) -> torch.Tensor:
            read.append(stop - start)
            return super().block(start, stop)

    rows = SelectedRows(Watched(values), torch.arange(0, 10_000, 100))
    assert torch.equal(rows.block(0, rows.p), values[::100])
    assert max(read) <= Watched(values).block_rows
    assert len(read) < 20


@pytest.mark.parametrize("index", [[3, 2], [1, 1], [-1, 4], [4, P]])
def test_rows_out_of_order_or_out_of_range_are_refused(index: list[int]) -> None:
    with pytest.raises(ExhumeError, match="increasing"):
        SelectedRows(WHOLE, torch.tensor(index))
