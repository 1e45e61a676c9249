"""Ctrl-C and kill: what was found is kept, and the same command goes on from there."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from exhume.cli.app import main
from exhume.experiments.run import RunFolder

# a step so small that the attack never converges
ENDLESS = ("--method", "heavy-ball", "--step", "1e-9", "--seed", "1")


def call(*arguments: str | Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["exhume", *map(str, arguments)])
        main()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    call("train", "rf", "--data", "sphere", "--dim", "20", "--samples", "4", "--ratio", "4", "--out", tmp_path / "run")
    return tmp_path / "run"


def read_until(terminal: int, pattern: str, seconds: float) -> str:
    text, deadline = "", time.monotonic() + seconds
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                text += os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # how Linux reports that the other side of a terminal is closed
                return text
        if pattern and re.search(pattern, text):
            return text
    pytest.fail(f"expected {pattern or 'the end'} on the terminal within {seconds} s, found {text[-500:]!r}")


def plain(text: str) -> list[str]:
    """The lines that stay on a terminal: without control sequences, and what they erased."""
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n").split("\n")
    return [line.rpartition("\r")[2].strip() for line in lines if "digging" not in line and line.strip()]


def test_ctrl_c_keeps_what_was_found_and_the_next_run_goes_on(run: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "exhume", "attack", str(run), *ENDLESS, "--iterations", "10000000", "--json"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    attack = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    try:
        shown = read_until(ours, r"digging.*[1-9]\d*/10000000.*loss", 100)
        attack.send_signal(signal.SIGINT)
        shown += read_until(ours, "", 100)
        printed, _ = attack.communicate(timeout=100)
    finally:
        attack.kill()
        os.close(ours)
    assert attack.returncode == 130
    notes = [line for line in plain(shown) if "interrupted" in line]
    assert len(notes) == 1, shown
    assert "the same command continues" in notes[0]
    assert "Traceback" not in shown
    assert len(printed.splitlines()) == 1, "progress is on standard error alone"
    first = json.loads(printed)
    assert first["iterations"] > 0
    assert (run / "reconstruction.safetensors").exists()
    assert (run / "checkpoint.safetensors").exists()

    limits = ("--iterations", "10000000", "--budget", f"{first['seconds'] + 1.5}s")
    call("attack", run, *ENDLESS, *limits)
    second = RunFolder(run).summary()
    assert second["iterations"] > first["iterations"]
    assert [line["iteration"] for line in RunFolder(run).trace()] == list(range(second["iterations"] + 1))


# Kills itself without warning while it writes its fifth checkpoint; a checkpoint is written after every iteration.
KILLED = """
import os, pathlib, signal, sys
import exhume.attacks.running.loop as loop
from exhume.cli.app import main
loop.CHECKPOINT_SECONDS = -1.0
save, saved = loop.save_checkpoint, []
def save_or_die(path, checkpoint):
    if len(saved) == 4:
        pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    save(path, checkpoint)
    saved.append(checkpoint)
loop.save_checkpoint = save_or_die
sys.argv = ["exhume", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("method", ["heavy-ball", "split-newton"])
def test_an_attack_that_was_killed_ends_as_if_it_had_not_been(run: Path, method: str) -> None:
    limits = ("--method", method, "--iterations", "40", "--seed", "1")
    calm = Path(shutil.copytree(run, run.with_name("calm")))
    call("attack", calm, *limits)

    command = [sys.executable, "-c", KILLED, "attack", str(run), *limits]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (run / "checkpoint.safetensors").exists()
    assert not (run / "reconstruction.safetensors").exists()
    before = RunFolder(run).summary()

    call("attack", run, *limits)
    ours, theirs = RunFolder(run), RunFolder(calm)
    assert torch.equal(ours.reconstruction().candidates, theirs.reconstruction().candidates)
    assert torch.equal(ours.reconstruction().coefficients, theirs.reconstruction().coefficients)
    assert [line["loss"] for line in ours.trace()] == [line["loss"] for line in theirs.trace()]
    for key in ("loss", "held_out_loss", "outcome", "iterations", "passes"):
        assert ours.summary()[key] == theirs.summary()[key]
        assert key not in before
    assert not (run / "checkpoint.safetensors").exists()


def test_a_checkpoint_of_other_settings_is_not_continued(run: Path) -> None:
    call("attack", run, *ENDLESS, "--budget", "0.2s")
    assert (run / "checkpoint.safetensors").exists()
    call("attack", run, "--method", "heavy-ball", "--step", "1e-9", "--seed", "2", "--iterations", "3")
    assert RunFolder(run).summary()["iterations"] == 3
