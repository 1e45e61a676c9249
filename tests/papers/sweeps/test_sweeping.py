"""The loop of a sweep: nothing twice, nothing lost, whatever happens on the way."""

import csv
import json
import os
import random
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.errors import ExhumeError, UsageError
from exhume_papers.sweeps import jobs
from exhume_papers.sweeps.engine_choice import make_engine
from exhume_papers.sweeps.engines import Engine, Event, HereEngine, JobDone, JobLost
from exhume_papers.sweeps.jobs import Job, TrainJob
from exhume_papers.sweeps.plan import PlannedRun, SweepPlan
from exhume_papers.sweeps.results import COSTS
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweep_folder import Ended, SweepFolder
from exhume_papers.sweeps.sweeping import Onlooker, Swept, run_sweep

VICTIM = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2, "ratio": 3}
ATTACKS = ({"method": "heavy-ball", "iterations": 3}, {"method": "heavy-ball", "iterations": 4})


@pytest.fixture(scope="module")
def plan() -> SweepPlan:
    return Sweep(victims=(VICTIM,), attacks=ATTACKS, seeds=2).plan()


def sweep(plan: SweepPlan, out: Path, **options: Any) -> Swept:
    return run_sweep(plan, out, options.pop("engine", HereEngine(out)), **options)


def table(out: Path) -> list[dict[str, str]]:
    """The results without what differs each time."""
    with (out / "results.csv").open(newline="") as file:
        return [{name: value for name, value in line.items() if name not in COSTS} for line in csv.DictReader(file)]


@pytest.fixture(scope="module")
def undisturbed(plan: SweepPlan, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    out = tmp_path_factory.mktemp("undisturbed")
    swept = sweep(plan, out)
    assert (swept.done, swept.failed, swept.left, swept.interrupted) == (4, 0, 0, False)
    return table(out)


class Counting(Onlooker):
    """Counts what was done."""

    def __init__(self) -> None:
        self.trained = self.attacked = 0
        self.before: Mapping[str, Ended] = {}
        self.seen: list[str] = []

    def begin(self, plan: SweepPlan, ended: Mapping[str, Ended]) -> None:
        self.before = dict(ended)

    def started(self, job: Job) -> None:
        self.trained += isinstance(job, TrainJob)
        self.attacked += not isinstance(job, TrainJob)

    def ended(self, run: PlannedRun, end: Ended, seconds: float) -> None:
        self.seen.append(run.key)


def test_the_table_has_one_line_a_run_in_the_order_of_the_grid(
    plan: SweepPlan, undisturbed: list[dict[str, str]]
) -> None:
    assert [line["run"] for line in undisturbed] == [run.key for run in plan.runs]
    assert [line["seed"] for line in undisturbed] == ["0", "0", "1", "1"]
    assert [line["iterations"] for line in undisturbed] == ["3", "4", "3", "4"]
    assert all(line["status"] == "done" and line["reason"] == "" for line in undisturbed)
    assert all(0 < float(line["error"]) < 2 and line["outcome"] for line in undisturbed)


def test_a_victim_is_trained_once_for_all_attacks_and_a_second_time_nothing_is_done(
    plan: SweepPlan, tmp_path: Path
) -> None:
    first, second = Counting(), Counting()
    sweep(plan, tmp_path, onlooker=first)
    assert (first.trained, first.attacked) == (2, 4)
    written = (tmp_path / "results.csv").read_text()
    again = sweep(plan, tmp_path, onlooker=second)
    assert (second.trained, second.attacked, len(second.before)) == (0, 0, 4)
    assert (again.done, again.left) == (4, 0)
    assert (tmp_path / "results.csv").read_text() == written


def test_a_larger_grid_runs_only_what_is_new(plan: SweepPlan, tmp_path: Path) -> None:
    sweep(plan, tmp_path)
    more = Sweep(victims=(VICTIM,), attacks=(*ATTACKS, {"method": "heavy-ball", "iterations": 5}), seeds=2).plan()
    counted = Counting()
    assert sweep(more, tmp_path, onlooker=counted).done == 6
    assert (counted.trained, counted.attacked) == (0, 2)


def test_a_run_of_a_sweep_is_a_run_folder_like_any_other(plan: SweepPlan, tmp_path: Path) -> None:
    sweep(plan, tmp_path)
    folder = tmp_path / "runs" / plan.runs[0].key
    assert {path.name for path in folder.iterdir()} >= {
        "config.json",
        "observation.safetensors",
        "truth.safetensors",
        "reconstruction.safetensors",
        "summary.json",
        "trace.csv",
    }
    victim = tmp_path / "victims" / plan.runs[0].victim.key
    assert (folder / "truth.safetensors").stat().st_ino == (victim / "truth.safetensors").stat().st_ino
    assert "error" not in json.loads((victim / "summary.json").read_text()), "an attack must not write to the victim"
    assert not list(tmp_path.rglob("*.tmp"))


def test_with_results_only_the_weights_go_and_the_numbers_stay(
    plan: SweepPlan, tmp_path: Path, undisturbed: list[dict[str, str]]
) -> None:
    sweep(plan, tmp_path, keep="results")
    assert table(tmp_path) == undisturbed
    assert list((tmp_path / "victims").iterdir()) == []
    assert {path.name for path in tmp_path.rglob("*.safetensors")} == {
        "truth.safetensors",
        "reconstruction.safetensors",
    }
    counted = Counting()
    sweep(plan, tmp_path, keep="results", onlooker=counted)
    assert (counted.trained, counted.attacked) == (0, 0)


def test_a_failure_is_recorded_with_its_reason_and_the_rest_goes_on(
    plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[dict[str, str]]
) -> None:
    bad = plan.runs[2]
    attack = jobs.attack_run

    def fail_one(run: Any, prepared: Any, *rest: Any) -> Any:
        if bad.key in str(run.path):
            raise RuntimeError("no\nluck")
        return attack(run, prepared, *rest)

    monkeypatch.setattr(jobs, "attack_run", fail_one)
    swept = sweep(plan, tmp_path)
    assert (swept.done, swept.failed, swept.left) == (3, 1, 0)
    line = table(tmp_path)[2]
    assert (line["status"], line["reason"], line["error"]) == ("failed", "RuntimeError: no luck", "")
    kept = (tmp_path / "runs" / bad.key / "failed.json").read_text()
    assert json.loads(kept)["reason"] == "RuntimeError: no luck"
    assert [one for one in table(tmp_path) if one["status"] == "done"] == undisturbed[:2] + undisturbed[3:]

    monkeypatch.undo()
    counted = Counting()
    sweep(plan, tmp_path, onlooker=counted)
    assert (counted.attacked, len(counted.before)) == (0, 4), "what failed is not tried again by itself"
    sweep(plan, tmp_path, onlooker=counted, retry_failed=True)
    assert (counted.trained, counted.attacked) == (0, 1)
    assert table(tmp_path) == undisturbed


def test_a_victim_that_cannot_be_trained_fails_all_its_runs(
    plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ExhumeError("expected more, found less")

    monkeypatch.setattr(jobs, "train_run", fail)
    swept = sweep(plan, tmp_path)
    assert (swept.done, swept.failed) == (0, 4)
    assert {line["reason"] for line in table(tmp_path)} == {"training: expected more, found less"}


def test_two_sweeps_do_not_work_in_one_folder(plan: SweepPlan, tmp_path: Path) -> None:
    with SweepFolder(tmp_path).locked(), pytest.raises(UsageError, match="found another command at work there"):
        sweep(plan, tmp_path)


def test_a_folder_that_cannot_be_written_is_one_line(plan: SweepPlan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExhumeError, match=r"expected a writable folder at .*file/out"):
        sweep(plan, tmp_path / "file" / "out")


def test_results_that_were_made_with_other_defaults_are_not_taken_for_these(plan: SweepPlan, tmp_path: Path) -> None:
    sweep(plan, tmp_path)
    path = tmp_path / "runs" / plan.runs[0].key / "config.json"
    config = json.loads(path.read_text())
    config["settings"]["model"]["activation"] = "tanh"
    path.write_text(json.dumps(config))
    with pytest.raises(UsageError, match="found others: defaults have changed"):
        sweep(plan, tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cloud", {}, "expected an engine out of local, ray, here, found 'cloud'"),
        ("local", {"address": "x:1"}, "expected --address with --engine ray"),
        ("local", {"workers": 0}, "expected --workers from 1, found 0"),
        ("here", {"threads": -1}, "expected --threads from 1, found -1"),
    ],
)
def test_an_engine_that_is_not_there_is_refused(tmp_path: Path, name: str, options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_engine(name, tmp_path, **options)


class Flaky(Engine):
    """Runs jobs here in any order, and loses some of them."""

    def __init__(self, root: Path, lost: Sequence[bool]) -> None:
        self._here, self._root = random.Random(0), root
        self._lost = list(lost)
        self._jobs: list[Job] = []

    @property
    def room(self) -> int:
        return 3 - len(self._jobs)

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def events(self, timeout: float) -> Sequence[Event]:
        job = self._jobs.pop(self._here.randrange(len(self._jobs)))
        if self._lost and self._lost.pop(0):
            return [JobLost(job.key, "its process ended with signal 9")]
        return [JobDone(job.key, jobs.execute(job, self._root, lambda words: None))]

    def interrupt(self) -> None:
        self._jobs.clear()

    def close(self) -> None:
        self._jobs.clear()


def test_jobs_that_end_in_any_order_or_are_lost_once_give_the_same_table(
    plan: SweepPlan, tmp_path: Path, undisturbed: list[dict[str, str]]
) -> None:
    swept = sweep(plan, tmp_path, engine=Flaky(tmp_path, [True, False, False, True]))
    assert (swept.done, swept.failed) == (4, 0)
    assert table(tmp_path) == undisturbed


def test_a_job_that_is_always_lost_fails_and_says_so(plan: SweepPlan, tmp_path: Path) -> None:
    swept = sweep(plan, tmp_path, engine=Flaky(tmp_path, [True] * 99))
    assert (swept.done, swept.failed) == (0, 4)
    assert "ended with signal 9, 2 times" in table(tmp_path)[0]["reason"]


def test_ctrl_c_stops_and_the_next_sweep_goes_on(
    plan: SweepPlan, tmp_path: Path, undisturbed: list[dict[str, str]]
) -> None:
    class Stopper(Onlooker):
        def ended(self, run: PlannedRun, end: Ended, seconds: float) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    swept = sweep(plan, tmp_path, onlooker=Stopper())
    assert (swept.done, swept.left, swept.interrupted) == (1, 3, True)
    assert len(table(tmp_path)) == 1
    counted = Counting()
    assert sweep(plan, tmp_path, onlooker=counted).left == 0
    assert (len(counted.before), counted.attacked) == (1, 3)
    assert table(tmp_path) == undisturbed


def test_a_sweep_that_is_killed_at_any_moment_goes_on_to_the_same_table(
    plan: SweepPlan, tmp_path: Path, undisturbed: list[dict[str, str]]
) -> None:
    """Forks of this process, because a new one would import for seconds what takes milliseconds to run."""
    chance, patience, ended = random.Random(1), 0.1, set[str]()
    for _ in range(40):
        before = {path.name for path in (tmp_path / "runs").glob("[!.]*")}
        assert ended <= before, "a run that ended is never lost"
        ended = before
        if _in_a_fork(plan, tmp_path, chance.uniform(0.0, patience)) == 0:
            break
        patience *= 1.3  # however busy the machine is
    else:
        pytest.fail("expected an end at last, found none")
    assert table(tmp_path) == undisturbed
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.glob("runs/.*"))


def _in_a_fork(plan: SweepPlan, out: Path, seconds: float) -> int:
    """The exit code of a sweep that is killed after so long; 0 if it was done before."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            sweep(plan, out)
            code = 0
        finally:
            os._exit(code)
    killer = threading.Timer(seconds, os.kill, (child, signal.SIGKILL))
    killer.start()
    status = os.waitpid(child, 0)[1]
    killer.cancel()
    killer.join()
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL)
    return code
