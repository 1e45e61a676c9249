import math
import re

import pytest
from rich.console import Console

from exhume_papers.cli import bars


@pytest.mark.parametrize(
    ("done", "first", "loss", "until", "expected"),
    [
        (0.1, 1.0, 1.0, 1e-8, 0.1),
        (0.1, 1.0, 1e-4, 1e-8, 0.5),
        (0.1, 1.0, 1e-9, 1e-8, 1.0),
        (0.7, 1.0, 1e-4, 1e-8, 0.7),
        (0.3, 1.0, 1e-4, 0.0, 0.3),
        (0.3, 1.0, 0.0, 1e-8, 0.3),
        (0.3, 0.0, 0.0, 1e-8, 0.3),
        (0.3, 1.0, math.nan, 1e-8, 0.3),
        (0.3, 1.0, 0.5, 2.0, 0.3),
    ],
)
def test_the_way_to_the_target_is_counted_in_powers(
    done: float, first: float, loss: float, until: float, expected: float
) -> None:
    assert bars._way_done(done, first, loss, until) == pytest.approx(expected)


def test_a_bar_shows_loss_and_steps_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bars, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=100))
    with bars.training_bar(1000, 1e-9) as show:
        show(500, 1.0)
        show(800, 2.5e-5)
    shown = capsys.readouterr()
    assert shown.out == ""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.err)
    assert re.search(r"training .* loss 2\.5e-05 800 steps [\d.]+ steps/s", text)


def test_without_a_terminal_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with bars.training_bar(1000, 1e-9) as show:
        show(1, 0.5)
    printed = capsys.readouterr()
    assert printed.out + printed.err == ""
