from pathlib import Path
from typing import Any

import pytest

from exhume_papers.figures.compare_figure import draw_compared

MADE: dict[str, Any] = {
    "name": "ntk",
    "reason": None,
    "outcome": "partial",
    "error": 0.02,
    "chance_error": 1.2,
    "held_out_loss": 0.01,
    "candidates": 6,
    "seconds": 3.0,
}


@pytest.mark.parametrize(
    "rows",
    [
        [MADE, {**MADE, "name": "kkt", "outcome": "not_converged", "error": 0.0}],
        [{**MADE, "error": None, "chance_error": None, "held_out_loss": None}],
        [{**MADE, "reason": "needs more"}],
    ],
)
def test_every_table_can_be_drawn(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    draw_compared(rows, "a run", tmp_path / "compare.png")
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
