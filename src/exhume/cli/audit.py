"""`exhume audit`: what a user's own model gives away, and a report for whoever decides about its release."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from exhume.cli.beginning import command_began
from exhume.cli.output import attack_bar, print_json, say
from exhume.requests.audit import AuditRequest

if TYPE_CHECKING:
    from exhume.attacks.foundation.planned_attack import PlannedAttack
    from exhume.attacks.running.loop import Progress
    from exhume.auditing.audit import Audit
    from exhume.auditing.linear_versions import LinearAudit
    from exhume.auditing.progress_folder import ProgressFolder
    from exhume.auditing.stored_report import StoredAudit
    from exhume.verdicts import Verdict


def audit(request: AuditRequest, json: bool) -> None:
    """Attack a model of your own within a budget, and write a report for its release decision.

    Example: exhume audit head.safetensors --features V.safetensors --activation relu --samples 20 --out audit
    """
    from exhume.auditing.from_files import write_audit
    from exhume.auditing.linear_versions import audit_linear
    from exhume.auditing.progress_folder import ProgressFolder
    from exhume.auditing.stored_report import audit_stored
    from exhume.experiments.run import check_new
    from exhume.verdicts import parse_verdict

    check_new(request.out)
    limit = None if request.fail_on is None else parse_verdict(request.fail_on)
    stored = audit_stored(request)
    if stored is not None:
        _tell_stored(stored, limit, json)
        return
    linear = audit_linear(request)
    if linear is not None:
        _tell_linear(linear, limit, json)
        return
    with ProgressFolder.of_request(request) as progress:
        done = _carried_out(request, progress, json)
    page = write_audit(done, request.out, request.reveal)
    _say(done, page, json)
    if json:
        print_json(done.summary | {"report": str(page)})
    if done.interrupted:
        if request.progress is not None:
            say(f"interrupted: --progress {request.progress} with another --out goes on", as_json=True)
        raise typer.Exit(130)
    _fail(done.verdict, limit, request)


def _carried_out(request: AuditRequest, progress: "ProgressFolder | None", json: bool) -> "Audit":
    """Reads the model and attacks it; what is known of it before the first attack is printed before."""
    from exhume.attacks.running.budget import Limits, ready_in_time
    from exhume.auditing.audit import AuditSettings
    from exhume.auditing.from_files import read_question
    from exhume.auditing.run import run_audit
    from exhume.theory import explain, gauge

    settings = AuditSettings(request, since=command_began())
    with (
        ready_in_time(Limits(request.budget, since=settings.since), "a model that is read"),
        _seed_bar(request.initial_seed_search) as tried,
    ):
        question = read_question(request, tried)
    seen = question.target.observation
    n = request.samples if question.truth is None else len(question.truth.inputs)
    say(explain(gauge(seen.equations, seen.d, n), parameters=seen.p)[0], json)
    for note in question.target.notes:
        say(note, json)
    with _bars() as watch:
        return run_audit(question, settings, watch, progress)


def _tell_stored(done: "StoredAudit", limit: "Verdict | None", json: bool) -> None:
    """Two versions of a model that stores records: there was nothing to attack."""
    from exhume.auditing.stored_report import write_stored

    page = write_stored(done, done.request.reveal)
    say(done.sentence, json)
    say(done.summary["confidence"], json)
    for change in done.changes:
        moved = "" if change.reweighted is None else f", {change.reweighted} of them with another coefficient"
        say(f"  {change.what}: {change.shared} in both versions{moved}", json)
        for row in (*change.gone, *change.new):
            which = "" if row.number is None else f", row {row.number} of its training set"
            say(f"    stored record {row.place}{which}: {row.how}", json)
    say(f"wrote {page}", json)
    if json:
        print_json(done.summary | {"report": str(page)})
    _fail(done.verdict, limit, done.request)


def _tell_linear(done: "LinearAudit", limit: "Verdict | None", json: bool) -> None:
    """Two versions of a linear model: the change is computed, and nothing is searched."""
    from exhume.auditing.linear_versions import write_linear

    page = write_linear(done, done.request.reveal)
    for text in (done.sentence, done.confidence, *done.notes, f"wrote {page}"):
        say(text, json)
    if json:
        print_json(done.summary | {"report": str(page)})
    _fail(done.verdict, limit, done.request)


def _fail(verdict: "Verdict", limit: "Verdict | None", request: AuditRequest) -> None:
    if limit is not None and verdict.severity >= limit.severity:
        say(f"failed on the verdict {verdict.title.lower()} (--fail-on {request.fail_on})", as_json=True)
        raise typer.Exit(1)


@contextmanager
def _seed_bar(seeds: int | None) -> "Iterator[Callable[[int], None]]":
    """One bar for the search of a seed; nothing where none is searched for, or where there is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if seeds is None or not console.is_terminal:
        yield lambda seed: None
        return
    with Progress(console=console, transient=True) as bars:
        task = bars.add_task("seeds", total=seeds)
        yield lambda seed: bars.update(task, completed=seed + 1)


@contextmanager
def _bars() -> "Iterator[Callable[[PlannedAttack, Progress], None]]":
    """One bar a method; where standard error is no terminal nothing is shown."""
    from exhume.attacks.modules.newton import ModuleNewton

    with attack_bar(ModuleNewton.iterations) as show:
        yield lambda offer, progress: show(progress)


def _say(done: "Audit", page: Path, json: bool) -> None:
    say(done.sentence, json)
    say(done.said["confidence"], json)
    for line in done.subject.attempts:
        count = "" if line["told"] is None else f", told n = {line['told']}"
        how = line["outcome"] or f"could not run: {line['note']}"
        say(f"  {line['method']} (seed {line['seed']}{count}): {how}, {line['seconds']:.1f} s", json)
        say(f"    {line['why']}", json)
    for line in done.subject.passed_over:
        say(f"  not made: {line['method']}. {line['why']}", json)
    if done.subject.stronger:
        say("What would have made this audit stronger:", json)
    for what in done.subject.stronger:
        say(f"  {what}", json)
    for line in done.subject.what_if:
        say(f"  what if {line['name']}: {line['title'].lower()}{_share(line)}", json)
    say(f"wrote {page}", json)


def _share(line: dict[str, Any]) -> str:
    return "" if line["recovered"] is None else f" ({line['recovered']} of {line['samples']})"
