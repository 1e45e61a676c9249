"""The command line as a process of its own: Ctrl-C before it has begun, and after it has ended."""

import signal
from collections.abc import Iterator

import pytest

import exhume.cli
import exhume.cli.app


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_outside_of_a_command_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exhume.cli.app, "main", pressed)
    with pytest.raises(SystemExit) as left:
        exhume.cli.main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "exhume: interrupted\n"


@pytest.mark.parametrize("code", [0, 1, 130])
def test_ctrl_c_after_the_end_changes_nothing(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def leave(_: float) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(exhume.cli.app, "main", leave)
    with pytest.raises(SystemExit) as left:
        exhume.cli.main()
    assert left.value.code == code
    signal.raise_signal(signal.SIGINT)
