"""Runs figures and writes, for each, its picture, its numbers and what was found."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.experiments.run import RunFolder
from exhume.files import SCHEMA, write_json, write_text
from exhume.version import VERSION
from exhume_papers.catalogue.figure import RELEASED, Figure, Part, PartResults, Scale
from exhume_papers.studies.released_metric import released_error
from exhume_papers.sweeps.engines import Engine
from exhume_papers.sweeps.plan import SweepPlan, plan_of
from exhume_papers.sweeps.results import COSTS, as_csv, columns, rows
from exhume_papers.sweeps.sweep_folder import Ended, SweepFolder
from exhume_papers.sweeps.sweeping import Onlooker, Swept, run_sweep

SWEEP = "sweep"
SUMMARY = "figure.json"
ALONE = 0.5
"""Runs that take more than this share of the memory run one at a time, with all cores."""

EngineMaker = Callable[[bool], Engine]
"""An engine for many runs at once, or (True) for one at a time."""


@dataclass(frozen=True)
class PlannedFigure:
    figure: Figure
    parts: tuple[tuple[Part, SweepPlan], ...]

    @property
    def plan(self) -> SweepPlan:
        return plan_of(run for _, plan in self.parts for run in plan.runs)


def plan_figure(figure: Figure, scale: Scale, data_dir: str | None) -> PlannedFigure:
    """Every run of a figure, checked; needs the data to be there."""
    parts = []
    for part in figure.parts(scale):
        plans = [sweep.plan(data_dir=data_dir) for sweep in part.sweeps]
        parts.append((part, plan_of(run for plan in plans for run in plan.runs)))
    return PlannedFigure(figure, tuple(parts))


def run_figures(
    planned: Sequence[PlannedFigure],
    out: Path,
    engine: EngineMaker,
    *,
    memory: float = math.inf,
    retry_failed: bool = False,
    onlooker: Callable[[], AbstractContextManager[Onlooker]] = lambda: nullcontext(Onlooker()),
) -> list[Swept]:
    """All runs of some figures, each once: first what can share the machine, then what needs it alone.

    `memory`: that of the machine in bytes; on a cluster, whose machines take care of their own, there is no bound.
    """
    plan = plan_of(run for one in planned for run in one.plan.runs)
    large = ALONE * memory
    swept: list[Swept] = []
    for alone in (False, True):
        some = SweepPlan(tuple(run for run in plan.runs if (run.memory > large) == alone))
        if not some.runs or (swept and swept[-1].interrupted):
            continue
        with onlooker() as looking:
            swept.append(
                run_sweep(
                    some,
                    out / SWEEP,
                    engine(alone),
                    keep="results",
                    retry_failed=retry_failed,
                    memory=memory,
                    onlooker=looking,
                )
            )
    return swept


def write_figure(planned: PlannedFigure, scale: Scale, out: Path, command: str) -> dict[str, Any]:
    """Draws what there is of a figure and writes numbers.csv and figure.json. Returns the latter."""
    sweep = SweepFolder(out / SWEEP)
    ended = {run.key: end for run in planned.plan.runs if (end := sweep.ended(run)) is not None}
    lines = _with_released(rows(planned.plan, ended), sweep.root / "runs")
    folder = out / planned.figure.name
    results = [_results(part, plan, ended, sweep) for part, plan in planned.parts]
    done = [result for result in results if result.rows]
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "numbers.csv", as_csv((*columns(planned.plan), RELEASED), lines))
    pictures = planned.figure.draw(done, folder) if done else []
    summary = {
        "schema": SCHEMA,
        "figure": planned.figure.name,
        "title": planned.figure.title,
        "scale": scale,
        "published": planned.figure.published,
        "measured": planned.figure.findings(done),
        "differs": planned.figure.differs.get(scale, ""),
        "command": command,
        "runs": len(planned.plan.runs),
        "done": sum(end.failure is None for end in ended.values()),
        "failed": sum(end.failure is not None for end in ended.values()),
        "reasons": sorted({end.failure for end in ended.values() if end.failure is not None}),
        "run_seconds": round(sum(_seconds(line) for line in lines), 1),
        "wall_seconds": round(_wall_seconds(lines, sweep.root / "runs"), 1),
        "pictures": [path.name for path in pictures],
        "exhume": VERSION,
    }
    write_json(folder / SUMMARY, summary)
    return summary


def _results(part: Part, plan: SweepPlan, ended: Mapping[str, Ended], sweep: SweepFolder) -> PartResults:
    done = {key: end for key, end in ended.items() if end.failure is None}
    return PartResults(part, _with_released(rows(plan, done), sweep.root / "runs"), sweep.root / "runs")


def _with_released(lines: Sequence[dict[str, Any]], runs: Path) -> list[dict[str, Any]]:
    """The lines with the error as the authors' code measures it, from what each run kept."""
    found = []
    for line in lines:
        value = None
        if line["status"] == "done":
            run = RunFolder(runs / str(line["run"]))
            truth, candidates = run.truth().inputs, run.reconstruction().candidates
            value = released_error(truth, candidates.to(truth.dtype))
        found.append({**line, RELEASED: value})
    return found


def _wall_seconds(lines: Sequence[Mapping[str, Any]], runs: Path) -> float:
    """How long at least one of the runs was at work: each ended when its summary was written, whoever asked for it."""
    ends = [(runs / str(line["run"]) / "summary.json", _seconds(line)) for line in lines]
    times = [(path.stat().st_mtime, seconds) for path, seconds in ends if path.exists()]
    return covered([(end - seconds, end) for end, seconds in times])


def covered(intervals: Sequence[tuple[float, float]]) -> float:
    """The length of the union of intervals.

    >>> covered([(0, 2), (1, 3), (5, 6), (5.5, 5.75)])
    4.0
    """
    total, reached = 0.0, -math.inf
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _seconds(line: Mapping[str, Any]) -> float:
    return sum(float(line[name]) for name in COSTS if name.endswith("seconds") and line.get(name) is not None)
