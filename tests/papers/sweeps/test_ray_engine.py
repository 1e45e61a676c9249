"""Sweeps on a real Ray that is started for the test on this machine."""

import csv
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exhume.errors import ExhumeError, UsageError
from exhume_papers.sweeps.engine_choice import make_engine
from exhume_papers.sweeps.engines import HereEngine
from exhume_papers.sweeps.jobs import AttackJob, Job
from exhume_papers.sweeps.plan import SweepPlan
from exhume_papers.sweeps.results import COSTS
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweeping import Onlooker, run_sweep

VICTIM = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2, "ratio": 3}


def make_plan(iterations: list[int], seeds: int) -> SweepPlan:
    attack = {"method": "heavy-ball", "iterations": iterations}
    return Sweep(victims=(VICTIM,), attacks=(attack,), seeds=seeds).plan()


def table(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open(newline="") as file:
        return [{name: value for name, value in line.items() if name not in COSTS} for line in csv.DictReader(file)]


def test_without_ray_its_engine_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"found it not installed; pip install 'exhume\[ray\]'"):
        make_engine("ray", tmp_path)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of one machine with two cores, as a user would start it."""
    ray = pytest.importorskip("ray")
    context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield context.address_info["address"]
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_ray_gives_the_table_that_this_process_gives(address: str, tmp_path: Path) -> None:
    plan = make_plan([3, 4], seeds=3)
    run_sweep(plan, tmp_path / "here", HereEngine(tmp_path / "here"))
    engine = make_engine("ray", tmp_path / "ray", address=address)
    swept = run_sweep(plan, tmp_path / "ray", engine)
    assert (swept.done, swept.failed) == (6, 0)
    assert table(tmp_path / "ray") == table(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_worker_of_ray_that_is_killed_loses_nothing(address: str, tmp_path: Path) -> None:
    class Killer(Onlooker):
        """Kills the process that works on the first attack, once."""

        first: str | None = None
        killed = False

        def started(self, job: Job) -> None:
            if isinstance(job, AttackJob):
                self.first = self.first or job.key

        def tick(self) -> None:
            worker = None if self.killed or self.first is None else worker_of_ray(self.first)
            if worker is not None:
                os.kill(worker, signal.SIGKILL)
                self.killed = True

    plan = make_plan([2000, 2500], seeds=2)
    run_sweep(plan, tmp_path / "here", HereEngine(tmp_path / "here"))
    killer = Killer()
    engine = make_engine("ray", tmp_path / "ray", address=address)
    swept = run_sweep(plan, tmp_path / "ray", engine, onlooker=killer)
    assert killer.killed, "expected a worker to kill, found none"
    assert (swept.done, swept.failed) == (4, 0)
    assert table(tmp_path / "ray") == table(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def refuse(**_: Any) -> None:
        raise ConnectionError("no cluster at 127.0.0.1:1")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    plan = make_plan([3], seeds=1)
    engine = make_engine("ray", tmp_path, address="127.0.0.1:1")
    with pytest.raises(ExhumeError, match=r"expected a Ray cluster at 127.0.0.1:1, found: no cluster"):
        run_sweep(plan, tmp_path, engine)


SPEC = """seeds = 2
[[victim]]
kind = "rf"
data = "sphere"
dim = 10
samples = 3
ratio = 4
[[attack]]
method = "split-newton"
iterations = 40
"""


@pytest.mark.slow
def test_the_command_finds_a_cluster_that_was_started_apart_from_it(tmp_path: Path) -> None:
    """Ray in processes of its own, with a token, as on a cluster."""
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    scripts = Path(sys.executable).parent

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(scripts / str(arguments[0])), *map(str, arguments[1:])]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, cwd=tmp_path)

    (tmp_path / "grid.toml").write_text(SPEC)
    head = ("--head", "--node-ip-address", "127.0.0.1", "--port", port, "--num-cpus", 2)
    started = call("ray", "start", *head, "--include-dashboard", "false", "--disable-usage-stats")
    try:
        assert started.returncode == 0, started.stderr
        cluster = ("--engine", "ray", "--address", f"127.0.0.1:{port}", "--threads", 1)
        done = call("exhume", "sweep", "grid.toml", *cluster, "--out", "on-ray")
        assert done.returncode == 0, done.stderr
    finally:
        call("ray", "stop")
    assert call("exhume", "sweep", "grid.toml", "--threads", 1, "--out", "local").returncode == 0
    assert len(table(tmp_path / "local")) == 2
    assert table(tmp_path / "on-ray") == table(tmp_path / "local")


def worker_of_ray(task: str) -> int | None:
    """The process that works on a task now: Ray gives it the task's name."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(f"ray::{task}".encode()):
                return int(path.parent.name)
        except OSError:  # it is gone
            continue
    return None
