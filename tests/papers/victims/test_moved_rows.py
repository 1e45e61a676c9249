from pathlib import Path

import torch

from exhume.features.rows import DrawnRows, Rows, hold, write_rows
from exhume_papers.victims.moved_rows import MovedRows

P, D, N = 700, 5, 3


def moved() -> MovedRows:
    stream = torch.Generator().manual_seed(0)
    return MovedRows(DrawnRows(3, P, D), 0.9, torch.randn(N, P, generator=stream), torch.randn(N, D, generator=stream))


def test_rows_are_the_formula_in_any_block_and_part(tmp_path: Path) -> None:
    rows = moved()
    assert isinstance(rows, Rows)
    whole = 0.9 * rows.initial.block(0, P) + rows.coefficients.T @ rows.inputs
    torch.testing.assert_close(rows.block(0, P), whole)
    torch.testing.assert_close(rows.block(250, 600), whole[250:600])
    torch.testing.assert_close(rows.part(100, 400).block(50, 70), whole[150:170])
    torch.testing.assert_close(hold(rows).values, whole)
    torch.testing.assert_close(write_rows(rows, tmp_path / "features.safetensors").block(0, P), whole)


def test_the_midpoint_is_halfway_between_start_and_end() -> None:
    rows = moved()
    torch.testing.assert_close(rows.midpoint().block(0, P), (rows.initial.block(0, P) + rows.block(0, P)) / 2)
