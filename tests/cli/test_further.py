"""Commands that other packages add through entry points."""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]
MODULE = '''
import typer

app = typer.Typer()


@app.command("inner")
def inner() -> None:
    print("inside")


@app.command("other")
def other() -> None:
    pass


def shout(word: str, loud: bool = False) -> None:
    """Say a word."""
    print(word.upper() if loud else word)
'''


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Entry points of a package that is only there for the test."""
    (tmp_path / "plugged_in.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plugged_in", raising=False)

    def register(**commands: str) -> None:
        found = [EntryPoint(name, value, "exhume.commands") for name, value in commands.items()]
        monkeypatch.setattr(
            "exhume.cli.further.entry_points", lambda group: found if group == "exhume.commands" else []
        )

    return register


def test_a_function_and_an_app_become_commands(exhume: Command, plugged: Callable[..., None]) -> None:
    plugged(shout="plugged_in:shout", whole="plugged_in:app")
    assert exhume("shout", "hello", "--loud").stdout == "HELLO\n"
    assert exhume("whole", "inner").stdout == "inside\n"
    shown = exhume("--help").stdout
    assert "Commands of plugged_in:\n  shout  Say a word.\n  whole" in shown
    assert shown.index("gauge") < shown.index("shout")
    assert "--install-completion" not in exhume("whole", "--help").stdout


def test_a_broken_command_is_one_line_and_the_others_work(exhume: Command, plugged: Callable[..., None]) -> None:
    plugged(shout="plugged_in:shout", gone="plugged_in:gone", absent="no_such_package:command")
    shown = exhume("--help")
    assert shown.returncode == 0
    assert "shout" in shown.stdout
    assert shown.stderr.splitlines() == [
        "exhume: expected a command absent in no_such_package:command, found ModuleNotFoundError: "
        "No module named 'no_such_package'",
        "exhume: expected a command gone in plugged_in:gone, found AttributeError: "
        "module 'plugged_in' has no attribute 'gone'",
    ]
    assert exhume("shout", "hello").stderr == ""
    asked = exhume("gone")
    assert asked.returncode == 2
    assert len([line for line in asked.stderr.splitlines() if "plugged_in:gone" in line]) == 1


def test_the_names_of_exhume_s_own_commands_cannot_be_taken(exhume: Command, plugged: Callable[..., None]) -> None:
    plugged(gauge="plugged_in:shout")
    assert "p / d = 60" in exhume("gauge", "--params", 6000, "--dim", 100, "--samples", 20).stdout


def test_a_mistyped_name_is_compared_with_these_too(exhume: Command, plugged: Callable[..., None]) -> None:
    plugged(shout="plugged_in:shout")
    assert "Did you mean 'shout'?" in exhume("shuot").stderr
