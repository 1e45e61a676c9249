"""One attack shared by several processes that torchrun starts: real ones, over loopback."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from exhume.experiments.run import RunFolder

pytestmark = pytest.mark.slow

Exhume = Callable[..., subprocess.CompletedProcess[str]]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
# float64, and an end before what is left is rounding alone: then every decision on the way is the same
EXACT = ("--dtype", "float64", "--seed", "1")
SPLIT = (*EXACT, "--method", "split-newton", "--iterations", "27")
PUBLISHED = (*EXACT, "--method", "heavy-ball", "--iterations", "60")
LOST = "exhume: expected 2 ranks, found that one has stopped; start again with the same command to continue"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    shape = ("--dim", "20", "--samples", "4", "--ratio", "30")
    command = [sys.executable, "-m", "exhume", "train", "rf", "--data", "sphere", *shape, "--out", str(run)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def torchrun(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*TORCHRUN, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=250, check=False, env=ENVIRONMENT | environment
    )


def assert_same_attack(ours: RunFolder, theirs: RunFolder) -> None:
    assert len(ours.trace()) == len(theirs.trace()) > 20
    for mine, other in zip(ours.trace(), theirs.trace(), strict=True):
        assert mine["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert mine["passes"] == pytest.approx(other["passes"], rel=1e-9)
    for name in ("candidates", "coefficients"):
        found, expected = getattr(ours.reconstruction(), name), getattr(theirs.reconstruction(), name)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    for key in ("outcome", "iterations", "samples_found", "held_out_rows"):
        assert ours.summary()[key] == theirs.summary()[key]
    assert not ours.checkpoint.exists()


@pytest.mark.parametrize("options", [SPLIT, PUBLISHED], ids=["split-newton", "heavy-ball"])
def test_two_ranks_give_what_one_process_gives(run: Path, exhume: Exhume, options: tuple[str, ...]) -> None:
    alone = Path(shutil.copytree(run, run.with_name("alone")))
    assert exhume("attack", alone, *options).returncode == 0
    done = torchrun("-m", "exhume", "attack", run, *options, "--json")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, "only the first rank talks"
    assert json.loads(done.stdout)["iterations"] == RunFolder(alone).summary()["iterations"]
    assert_same_attack(RunFolder(run), RunFolder(alone))


# Dies without warning at an iteration: the process that DYING names.
DIES = """
import os, signal, sys
import exhume.attacks.running.loop as loop
from exhume.cli.app import main
loop.CHECKPOINT_SECONDS = -1.0 if os.environ["DYING"] == "0" else 1e9
write_line = loop._trace_line
def write_or_die(step, *others):
    if step.iteration == int(os.environ["AT"]) and os.environ.get("RANK", "0") == os.environ["DYING"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return write_line(step, *others)
loop._trace_line = write_or_die
main()
"""


@pytest.mark.parametrize("options", [SPLIT, PUBLISHED], ids=["split-newton", "heavy-ball"])
def test_one_process_then_two_then_one_end_as_if_nothing_had_happened(
    run: Path, exhume: Exhume, options: tuple[str, ...]
) -> None:
    """The first attempt is killed, the second loses its second rank, the third goes through."""
    alone, script = Path(shutil.copytree(run, run.with_name("alone"))), run.with_name("dies.py")
    script.write_text(DIES)
    assert exhume("attack", alone, *options).returncode == 0

    command = [sys.executable, str(script), "attack", str(run), *options]
    killed = subprocess.run(command, timeout=100, check=False, env=ENVIRONMENT | {"DYING": "0", "AT": "12"})
    assert killed.returncode == -signal.SIGKILL
    saved = RunFolder(run).checkpoint.read_bytes()

    began = time.monotonic()
    lost = torchrun(script, "attack", run, *options, DYING="1", AT="20")
    assert time.monotonic() - began < 200, "a closed connection is noticed at once, not after the time limit"
    assert lost.returncode == 1
    assert [line for line in lost.stderr.splitlines() if line.startswith("exhume:")] == [LOST]
    assert lost.stdout == ""
    assert RunFolder(run).checkpoint.read_bytes() != saved, "the first rank saves where it is when another one dies"
    assert not (run / "reconstruction.safetensors").exists()

    assert exhume("attack", run, *options).returncode == 0
    assert_same_attack(RunFolder(run), RunFolder(alone))


def test_the_death_of_the_first_rank_is_told_by_the_other(run: Path) -> None:
    script = run.with_name("dies.py")
    script.write_text(DIES)
    lost = torchrun(script, "attack", run, *PUBLISHED, DYING="0", AT="5")
    assert lost.returncode == 1
    assert [line for line in lost.stderr.splitlines() if line.startswith("exhume:")] == [LOST]
    assert RunFolder(run).checkpoint.exists()


def test_a_rank_that_is_ended_while_it_waits_for_another_says_so(run: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "exhume", "attack", str(run)]
    waiting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | place)
    try:
        deadline = time.monotonic() + 100
        while not _answers(port):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        waiting.terminate()
        _, shown = waiting.communicate(timeout=20)
    finally:
        waiting.kill()
    assert waiting.returncode == 1
    assert [line[:46] for line in shown.splitlines()] == ["exhume: expected 2 ranks to the end, found tha"]


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_wrong_request_is_told_once(run: Path) -> None:
    refused = torchrun("-m", "exhume", "attack", run, "--budget", "soon")
    assert refused.returncode == 1, "torchrun's own code for a process that failed"
    complaints = [line for line in refused.stderr.splitlines() if line.startswith("exhume:")]
    assert len(complaints) == 1
    assert "soon" in complaints[0]


def test_a_signal_to_torchrun_keeps_what_was_found(run: Path, exhume: Exhume) -> None:
    endless = (*EXACT, "--method", "heavy-ball", "--step", "1e-9", "--iterations", "10000000")
    command = [*TORCHRUN, "-m", "exhume", "attack", str(run), *endless]
    attack = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        deadline = time.monotonic() + 200
        while not RunFolder(run).checkpoint.exists():  # the first one is written after 20 s
            assert attack.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        attack.send_signal(signal.SIGINT)
        _, shown = attack.communicate(timeout=100)
    finally:
        attack.kill()
    assert "interrupted: kept what was found so far; the same command continues" in shown
    first = RunFolder(run).summary()["iterations"]
    assert first > 0
    assert RunFolder(run).checkpoint.exists()
    seconds = RunFolder(run).summary()["seconds"] + 0.3
    assert exhume("attack", run, *endless, "--budget", f"{seconds}s").returncode == 0
    assert RunFolder(run).summary()["iterations"] > first
