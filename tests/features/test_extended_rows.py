import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.features.extended_rows import ExtendedRows
from exhume.features.rows import HeldRows


@given(st.integers(1, 6), st.booleans(), st.data())
def test_blocks_and_parts_are_those_of_the_whole_matrix(p: int, constant: bool, data: st.DataObject) -> None:
    values, bias = torch.randn(p, 3, dtype=torch.float64), torch.randn(p, dtype=torch.float64)
    whole = torch.cat([values, bias[:, None]], dim=1)
    if constant:
        whole = torch.cat([torch.eye(4, dtype=torch.float64)[-1:], whole])
    rows = ExtendedRows(HeldRows(values), bias, constant)
    assert (rows.p, rows.d) == whole.shape
    first = data.draw(st.integers(0, rows.p - 1))
    last = data.draw(st.integers(first + 1, rows.p))
    assert torch.equal(rows.block(first, last), whole[first:last])
    part = rows.part(first, last)
    assert torch.equal(part.block(0, part.p), whole[first:last])
