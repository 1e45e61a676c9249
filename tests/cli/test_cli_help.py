"""What a user sees before anything runs: help, version, exit codes, and the ways to start the program."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from exhume.version import VERSION

Command = Callable[..., subprocess.CompletedProcess[str]]
SCRIPT = Path(sys.executable).with_name("exhume")
GAUGE = ("gauge", "--params", "6000", "--dim", "100", "--samples", "20")


def commands(exhume: Command) -> list[tuple[str, ...]]:
    """Every command and sub-command, as the help itself lists them."""
    found: list[tuple[str, ...]] = [()]
    for command in found:
        _, _, listed = exhume(*command, "--help").stdout.partition("\nCommands:\n")
        found += [
            (*command, line.split()[0]) for line in listed.splitlines() if line.startswith("  ") and line[2:3] != " "
        ]
    return found


def test_every_command_has_a_help_with_an_example(exhume: Command) -> None:
    names = commands(exhume)
    assert set(names) >= {("demo",), ("gauge",), ("train",), ("train", "rf"), ("attack",), ("evaluate",), ("report",)}
    assert set(names) >= {("runs",), ("data",), ("data", "fetch")}
    for command in names:
        shown = exhume(*command, "--help")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "Example: exhume" in shown.stdout, command


def test_every_command_that_does_something_has_json(exhume: Command) -> None:
    for command in commands(exhume):
        shown = exhume(*command, "--help").stdout
        assert ("--json" in shown) != ("\nCommands:\n" in shown), command


def test_without_arguments_the_help_is_shown(exhume: Command) -> None:
    assert exhume().stdout == exhume("--help").stdout
    assert exhume().returncode == 0


def test_the_version_needs_no_command(exhume: Command) -> None:
    shown = exhume("--version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"exhume {VERSION}\n", "")


def test_gauge_speaks_of_both_thresholds(exhume: Command) -> None:
    shown = exhume(*GAUGE)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "p / d = 60" in shown.stdout


def test_gauge_reads_an_observation_without_being_told_anything(exhume: Command, tmp_path: Path) -> None:
    sphere = ("train", "rf", "--data", "sphere", "--dim", 10, "--samples", 3, "--ratio", 2, "--out", tmp_path / "a")
    exhume(*sphere)
    told = exhume("gauge", "--params", 60, "--dim", 10, "--samples", 3, "--json")
    assert exhume("gauge", tmp_path / "a" / "observation.safetensors", "--json").stdout == told.stdout


@pytest.mark.parametrize("program", [[str(SCRIPT)], [sys.executable, "-m", "exhume"]], ids=["script", "module"])
def test_the_program_starts_in_both_ways(program: list[str]) -> None:
    done = subprocess.run([*program, *GAUGE, "--json"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('{"p": 6000, "d": 100, "n": 20, "ratio": 3.0')
    wrong = subprocess.run([*program, "gauge"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("exhume: expected ")


def test_a_reader_who_leaves_early_is_no_error() -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "exhume", *GAUGE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    program.stdout.close()
    assert program.stderr is not None
    with program.stderr:
        assert program.stderr.read() == ""
    program.wait(timeout=60)


@pytest.mark.parametrize("place", [0, 2])
def test_debug_shows_the_traceback_wherever_it_stands(exhume: Command, tmp_path: Path, place: int) -> None:
    arguments = ["attack", str(tmp_path)]
    arguments.insert(place, "--debug")
    shown = exhume(*arguments)
    assert shown.returncode == 1
    assert "Traceback (most recent call last)" in shown.stderr
    assert shown.stderr.splitlines()[-1].startswith("exhume: expected ")


def test_a_fault_of_the_program_itself_is_one_line_too(exhume: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr("exhume.theory.gauge", fail)
    shown = exhume(*GAUGE)
    assert shown.returncode == 1
    assert shown.stderr.splitlines() == [
        "exhume: expected to get through, found a fault: ZeroDivisionError: first line second line; --debug shows where"
    ]


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (MemoryError(), 1, "expected enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes\nframe #0"), 1, "expected enough memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (torch.linalg.LinAlgError("linalg.inv: The matrix\nis singular."), 1, "inv: The matrix is singular; "),
    ],
)
def test_what_the_machine_does_is_one_line(
    exhume: Command, monkeypatch: pytest.MonkeyPatch, problem: BaseException, code: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr("exhume.theory.gauge", fail)
    shown = exhume(*GAUGE)
    assert shown.returncode == code
    assert len(shown.stderr.splitlines()) == 1
    assert shown.stderr.startswith("exhume: ")
    assert words in shown.stderr
