"""Fixtures and settings that every test shares."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import jaxtyping
import pytest
from hypothesis import settings

import shape_checker

# as the command line does, before torch is loaded: threads that wait must not spin on a busy machine
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

jaxtyping.jaxtyped = shape_checker.jaxtyped  # type: ignore[assignment]

# the first call into torch takes longer than hypothesis' own limit for an example
settings.register_profile("exhume", deadline=None)
settings.load_profile("exhume")


@pytest.fixture(autouse=True)
def _shapes_checked() -> None:
    shape_checker.begin_test()


@pytest.fixture
def shapes_unchecked() -> Iterator[None]:
    """Checking every call makes an attack six times slower, and the checks are not made for threads."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def exhume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line in this process: starting another one costs seconds."""
    from exhume.cli.app import main

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
