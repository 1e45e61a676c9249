import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from exhume_papers.cli.sweep_display import LiveOnlooker, PlainOnlooker, Titles
from exhume_papers.cli.sweep_pace import SweepProgress
from exhume_papers.sweeps.jobs import AttackJob, TrainJob
from exhume_papers.sweeps.plan import SweepPlan
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweep_folder import Ended

DONE = Ended({"outcome": "recovered", "error": 1e-3})
FAILED = Ended(None, "expected memory, found none")


@pytest.fixture(scope="module")
def plan() -> SweepPlan:
    victim = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2, "ratio": [1, 100_000]}
    return Sweep(victims=(victim,), attacks=({"method": "heavy-ball"},), seeds=2).plan()


def test_the_time_left_is_by_work_and_shared_among_those_at_work(plan: SweepPlan) -> None:
    pace = SweepProgress()
    pace.begin(plan, {plan.runs[0].key: DONE})
    assert (pace.done, pace.total, pace.seconds_left) == (1, 4, None)
    pace.started()
    pace.started()
    pace.count(plan.runs[2], failed=False, seconds=10.0)
    left = (plan.runs[1].work + plan.runs[3].work) / plan.runs[2].work
    assert pace.seconds_left == pytest.approx(10.0 * left / 2)
    assert 0.4 < pace.share < 0.6
    pace.count(plan.runs[1], failed=True, seconds=0.1)
    pace.count(plan.runs[3], failed=False, seconds=10.0)
    assert pace.share == 1.0
    assert pace.words() == "4/4, 1 failed, about 0 s left"


def test_another_method_has_a_pace_of_its_own() -> None:
    """A small run of one method says nothing of large ones of another."""
    victim = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2}
    small = Sweep(victims=(victim | {"ratio": [1]},), attacks=({"method": "heavy-ball"},), seeds=1).plan().runs
    large = Sweep(victims=(victim | {"ratio": [100_000]},), attacks=({"method": "split-newton"},), seeds=2).plan().runs
    pace = SweepProgress()
    pace.begin(SweepPlan((*small, *large)), {})
    pace.count(small[0], failed=False, seconds=5.0)
    assert pace.seconds_left is None
    assert pace.words() == "1/3"
    pace.count(large[0], failed=False, seconds=7.0)
    assert pace.seconds_left == pytest.approx(7.0)


def test_small_runs_do_not_foretell_large_ones(plan: SweepPlan) -> None:
    """Their seconds hardly depend on their work: what does not, times the work of a large run, is nonsense."""
    pace = SweepProgress()
    pace.begin(plan, {})
    pace.count(plan.runs[0], failed=False, seconds=1.0)
    pace.count(plan.runs[1], failed=False, seconds=1.1)
    assert plan.runs[2].work > 10 * plan.runs[1].work
    assert pace.seconds_left is None
    pace.count(plan.runs[2], failed=False, seconds=50.0)
    assert pace.seconds_left == pytest.approx(50.0)


def test_a_run_is_called_by_what_varies(plan: SweepPlan) -> None:
    assert Titles(plan).of(plan.runs[1]) == "ratio=1 seed=1"
    assert Titles(SweepPlan(plan.runs[:1])).of(plan.runs[0]) == "seed=0"


def test_without_a_terminal_there_is_one_line_a_run(plan: SweepPlan) -> None:
    lines: list[str] = []
    onlooker = PlainOnlooker(lines.append)
    onlooker.begin(plan, {plan.runs[0].key: DONE})
    onlooker.started(TrainJob(plan.runs[1].victim))
    onlooker.progress(plan.runs[1].key, "loss 1")
    onlooker.ended(plan.runs[1], DONE, 2.0)
    onlooker.ended(plan.runs[2], FAILED, 2.0)
    onlooker.stopping()
    assert lines[0] == "4 runs, 1 of them before"
    assert lines[1] == "ratio=1 seed=1: recovered, error 0.001, 2.0 s (2/4)"
    assert lines[2].startswith("ratio=100000 seed=0: failed: expected memory, found none, 2.0 s (3/4, 1 failed, about ")
    assert lines[3:] == ["stopping ..."]


def test_on_a_terminal_there_is_a_table_and_a_bar(plan: SweepPlan, tmp_path: Path) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with Live(console=console, auto_refresh=False) as live:
        onlooker = LiveOnlooker(live)
        onlooker.begin(plan, {})
        onlooker.started(TrainJob(plan.runs[0].victim))
        onlooker.started(AttackJob(plan.runs[1], False))
        onlooker.progress(plan.runs[1].key, "loss 1.0e-02")
        onlooker.progress("unknown", "nothing")
        onlooker.ended(plan.runs[2], FAILED, 75.0)
        onlooker.finished(plan.runs[0].victim.key)
        console.print(onlooker.picture())
    shown = stream.getvalue()
    for words in ("ratio=100000 seed=0", "failed: expected memory", "1 min 15 s", "loss 1.0e-02", "1/4, 1 failed"):
        assert words in shown
    assert "train rf" not in shown
