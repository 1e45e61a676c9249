"""The command line in this process: starting another one costs seconds."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from exhume.cli.app import main


@pytest.fixture
def exhume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["exhume", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as left:
            code = int(left.code or 0)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(sys.argv, code, printed.out, printed.err)

    return run
