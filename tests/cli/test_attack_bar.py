"""The bar of an attack, with and without a limit of iterations."""

import pytest
import torch

from exhume.attacks.foundation.state import State, Step
from exhume.attacks.running.loop import Progress
from exhume.cli.output import attack_bar


@pytest.mark.parametrize(("limit", "shown"), [(40, "7/40"), (None, "7 loss")])
def test_the_bar_shows_the_limit_where_there_is_one(
    limit: int | None, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with attack_bar(limit) as show:
        show(Progress(Step(7, torch.zeros(2, 3), 0.5, State({}, {})), 14.0, 2.0, limit))
    err = capsys.readouterr().err
    assert shown in " ".join(_plain(err).split())
    assert ("at most" in err) == (limit is not None)


def _plain(text: str) -> str:
    return "".join(part.split("m", 1)[-1] for part in text.split("\x1b["))
