"""`exhume sweep` as a user meets it. What takes real processes and minutes is marked slow."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exhume_papers.sweeps.results import COSTS

Command = Callable[..., subprocess.CompletedProcess[str]]

SPEC = """
seeds = 2

[[victim]]
kind = "rf"
data = "sphere"
dim = 8
samples = 2
ratio = 4

[[attack]]
method = "heavy-ball"
iterations = 5
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(SPEC)
    return path


def table(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open(newline="") as file:
        return [{name: value for name, value in line.items() if name not in COSTS} for line in csv.DictReader(file)]


def test_a_sweep_writes_its_table_and_says_so(exhume: Command, spec: Path) -> None:
    done = exhume("sweep", spec, "--engine", "here", "--json")
    assert done.returncode == 0
    last = json.loads(done.stdout.splitlines()[-1])
    assert {"runs": 2, "done": 2, "failed": 0, "left": 0}.items() <= last.items()
    assert last["results"] == str(spec.parent / "grid" / "results.csv")
    assert len(table(spec.parent / "grid")) == 2
    assert "heavy-ball" not in done.stderr.splitlines()[1], "what does not vary is not repeated"


def test_runs_of_a_sweep_are_listed_chosen_compared_and_averaged(exhume: Command, spec: Path) -> None:
    assert exhume("sweep", spec, "--engine", "here").returncode == 0
    out = spec.parent / "grid"
    keys = sorted(line["run"] for line in table(out))
    listed = json.loads(exhume("runs", out, "--json").stdout)["runs"]
    assert [line["run"] for line in listed] == keys
    chosen = exhume("runs", out, "--where", "model.seed=1", "--where", "ratio>2", "--columns", "n,error")
    assert [line.split()[0] for line in chosen.stdout.splitlines()] == ["run", table(out)[1]["run"]]
    compared = json.loads(exhume("runs", out, "--compare", "--json").stdout)
    assert {"error", "model.seed"} <= compared["differences"].keys()
    assert compared["differences"].keys().isdisjoint({"p", "method", "model.activation"})
    averaged = json.loads(exhume("runs", out, "--by", "ratio,method", "--json").stdout)["groups"]
    assert [(one["ratio"], one["method"], one["runs"]) for one in averaged] == [(4.0, "heavy-ball", 2)]
    errors = [float(line["error"]) for line in table(out)]
    assert averaged[0]["mean"] == pytest.approx(sum(errors) / 2)
    wrong = exhume("runs", out, "--where", "eror<1")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_a_sweep_finds_what_the_commands_find(exhume: Command, spec: Path, tmp_path: Path) -> None:
    told = SPEC.replace("seeds = 2", "seeds = [3]").replace("iterations = 5", "iterations = 5\npool = 2")
    spec.write_text(told)
    assert exhume("sweep", spec, "--engine", "here").returncode == 0
    line = table(tmp_path / "grid")[0]
    run, sphere = tmp_path / "run", ("--data", "sphere", "--dim", 8, "--samples", 2, "--ratio", 4)
    assert exhume("train", "rf", *sphere, "--seed", 3, "--out", run).returncode == 0
    pooled = ("--method", "heavy-ball", "--iterations", 5, "--pool", 2)
    assert exhume("attack", run, *pooled, "--seed", 3).returncode == 0
    scores = json.loads(exhume("evaluate", run, "--json").stdout)
    assert float(line["error"]) == scores["error"]
    assert (line["attack.pool"], line["pooled_runs"]) == ("2", "2")
    shown = exhume("runs", tmp_path / "grid", "--where", "attack.pool=2", "--columns", "attack.pool,attack.seed")
    assert shown.stdout.split()[-2:] == ["2", "3"]


def test_a_check_runs_nothing(exhume: Command, spec: Path) -> None:
    done = exhume("sweep", spec, "--check")
    assert (done.returncode, done.stdout) == (0, "2 runs on 2 victims, all in order\n")
    assert [path.name for path in spec.parent.iterdir()] == ["grid.toml"]


def test_a_run_that_fails_is_exit_code_1_and_named(
    exhume: Command, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("exhume_papers.sweeps.jobs.attack_run", fail)
    done = exhume("sweep", spec, "--engine", "here")
    assert done.returncode == 1
    assert "0 runs done, 2 failed" in done.stdout
    assert "the first that failed: RuntimeError: out of luck" in done.stdout
    out = spec.parent / "grid"
    listed = exhume("runs", out, "--where", "status=failed", "--where", "attack.iterations=5").stdout
    assert listed.splitlines()[0].split()[-1] == "reason"
    assert listed.count("RuntimeError: out of luck") == 2
    assert "out of luck" not in exhume("runs", out, "--where", "status=done").stdout
    monkeypatch.undo()
    assert exhume("sweep", spec, "--engine", "here", "--retry-failed").returncode == 0


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (("ratio = 4", "ratoi = 4"), [], "line 9: victim 1, ratoi: expected the settings"),
        (("iterations = 5", "iterations = 'x'"), [], "line 13: attack 1, iterations: expected iterations to be"),
        (("seeds = 2", "seeds = 0"), [], "expected"),
        (("", ""), ["--engine", "magic"], "expected an engine out of local, ray, here, found 'magic'"),
        (("", ""), ["--workers", "0"], "expected --workers from 1, found 0"),
        (("", ""), ["--address", "auto"], "expected --address with --engine ray"),
    ],
)
def test_a_wrong_sweep_is_one_line_and_exit_code_2(
    exhume: Command, spec: Path, change: tuple[str, str], arguments: list[str], words: str
) -> None:
    spec.write_text(SPEC.replace(*change))
    done = exhume("sweep", spec, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (spec.parent / "grid").exists()


def test_processes_give_the_table_that_this_process_gives(exhume: Command, spec: Path, tmp_path: Path) -> None:
    assert exhume("sweep", spec, "--engine", "here").returncode == 0
    done = exhume("sweep", spec, "--workers", "1", "--threads", "1", "--out", tmp_path / "local")
    assert done.returncode == 0
    assert table(tmp_path / "local") == table(tmp_path / "grid")


MANY = SPEC.replace("seeds = 2", "seeds = 6").replace("ratio = 4", "ratio = [0.5, 1, 2, 4]").replace("= 5", "= [5, 40]")


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def started() -> Iterator[Start]:
    """Starts real sweeps; those that are still there at the end of a test are killed."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(spec: Path, out: Path, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "exhume", "sweep", str(spec), "--out", str(out), *arguments]
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def ended_runs(out: Path) -> set[str]:
    return {path.name for path in (out / "runs").glob("[!.]*")}


def wait_for_runs(out: Path, process: subprocess.Popen[bytes], count: int) -> None:
    while process.poll() is None and len(ended_runs(out)) < count:
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # forty starts of Python with torch, and a machine may be busy
def test_twenty_kills_change_nothing_but_the_costs(exhume: Command, started: Start, spec: Path, tmp_path: Path) -> None:
    spec.write_text(MANY.replace("seeds = 6", "seeds = 40"))
    assert exhume("sweep", spec, "--threads", "1", "--out", tmp_path / "undisturbed").returncode == 0
    chance, kills, ended = random.Random(0), 0, set[str]()
    out = tmp_path / "killed"
    while kills < 20:
        process = started(spec, out)
        # as far as a few more runs, so that each kill hits real work, and then any moment
        wait_for_runs(out, process, len(ended) + chance.randrange(3))
        time.sleep(chance.uniform(0.0, 0.1))
        assert process.poll() is None, "expected a sweep to kill, found it at its end"
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert ended <= ended_runs(out), "a run that ended is never lost"
        ended = ended_runs(out)
    process = started(spec, out)
    assert process.wait(timeout=600) == 0
    assert table(out) == table(tmp_path / "undisturbed")
    assert len(table(out)) == 320
    assert not list(out.rglob("*.tmp"))


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(started: Start, spec: Path, tmp_path: Path) -> None:
    spec.write_text(MANY)
    process = started(spec, tmp_path / "out", "--workers", "1")
    wait_for_runs(tmp_path / "out", process, 3)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    os.kill(int(children[0]), signal.SIGKILL)
    assert process.wait(timeout=600) == 0
    assert [line["status"] for line in table(tmp_path / "out")] == ["done"] * 48


@pytest.mark.slow
def test_ctrl_c_stops_a_sweep_with_its_workers_and_the_next_goes_on(
    exhume: Command, started: Start, spec: Path
) -> None:
    spec.write_text(MANY)
    out = spec.parent / "out"
    process = started(spec, out)
    wait_for_runs(out, process, 3)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    assert 3 <= len(table(out)) < 48
    assert exhume("sweep", spec, "--out", out).returncode == 0
    assert len(table(out)) == 48


@pytest.mark.slow
def test_workers_end_with_a_sweep_that_is_killed(started: Start, spec: Path, tmp_path: Path) -> None:
    spec.write_text(MANY.replace("= [5, 40]", "= 10_000_000"))
    process = started(spec, tmp_path / "out", "--workers", "2")
    children: list[str] = []
    while len(children) < 2 or not list(tmp_path.glob("out/runs/.*.part")):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        time.sleep(0.05)
    process.kill()
    process.wait()
    until = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < until, "expected the workers to end, found one at work"
        time.sleep(0.05)
