"""`exhume audit`: what a user's own model gives away, and a report for whoever decides about its release."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exhume.cli.option_groups import flattened
from exhume.cli.options import JsonOption, SeedOption
from exhume.cli.output import attack_bar, print_json, say

if TYPE_CHECKING:
    from exhume.attacks.loop import Progress
    from exhume.attacks.offer import PlannedAttack
    from exhume.auditing.audit import Audit
    from exhume.auditing.from_files import Request
    from exhume.data.config import DataConfig


@dataclass(frozen=True)
class TargetOptions:
    """Which weights, and what they are weights of."""

    weights: Annotated[
        Path,
        typer.Argument(metavar="WEIGHTS", help="safetensors, or a PyTorch state dict or checkpoint (weights only)."),
    ]
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:FACTORY",
            help="Your function that returns the torch.nn.Module. It is code, and it runs only because you name it.",
        ),
    ] = None
    head: Annotated[str | None, typer.Option(help="The linear layer to attack; default: the last one called.")] = None
    features: Annotated[
        Path | None, typer.Option(help="Without code: a safetensors file with V (p x d), and b if there is a bias.")
    ] = None
    activation: Annotated[str | None, typer.Option(help="With --features: relu, tanh, gelu, ...")] = None
    initial: Annotated[
        str | None,
        typer.Option(
            help="The weights before training, or an earlier checkpoint: a file, or zero. Default: nobody knows "
            "(with --features: zero)."
        ),
    ] = None
    initial_seed: Annotated[
        int | None, typer.Option(min=0, help="The same, drawn again: torch.manual_seed(S), then the factory.")
    ] = None
    initial_seed_search: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The same, for an unknown seed: tries 0 to N - 1.")
    ] = None
    image_shape: Annotated[
        str | None, typer.Option(help="How the model takes one input, e.g. 3,32,32 or flat; default: by the data.")
    ] = None
    row_norm: Annotated[
        float | None, typer.Option(help="The norm of every training row, if an attacker would know it.")
    ] = None


@dataclass(frozen=True)
class RecordOptions:
    """Which records to hold the result against. The attack never sees them."""

    truth: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="The training records: a safetensors file with inputs (and labels), a folder of images, "
            "faces, cifar10 or tiny-imagenet.",
        ),
    ] = None
    control: Annotated[
        str | None, typer.Option(metavar="DATA", help="Records that were not trained on; default: more of the same.")
    ] = None
    samples: Annotated[
        int | None, typer.Option(min=1, help="n, the number of training records; needed with images as --truth.")
    ] = None
    data_dir: Annotated[Path | None, typer.Option(help="The folder with cifar-10-batches-bin/ and the like.")] = None
    classes: Annotated[str | None, typer.Option(help="Comma-separated, e.g. frog,truck.")] = None
    per_class: Annotated[str | None, typer.Option(help="Comma-separated counts; default: an even split.")] = None
    side: Annotated[int | None, typer.Option(help="Average images down to side x side pixels.")] = None
    standardise: Annotated[str | None, typer.Option(help="As in 'exhume train': subset, channels, none, ...")] = None
    norm: Annotated[str | None, typer.Option(help="As in 'exhume train': sqrt-d or keep.")] = None

    def source(self, name: str | None) -> "Path | DataConfig | None":
        from exhume.auditing.records import is_a_file
        from exhume.data.config import DataConfig
        from exhume.data.wishes import image_fields
        from exhume.errors import UsageError

        if name is None:
            return None
        if is_a_file(name):
            return Path(name)
        if self.samples is None:
            raise UsageError(f"expected --samples, the number of training records, with images of {name}, found none")
        return DataConfig.parse(name=name, samples=self.samples, **image_fields(self))


@flattened
def audit(
    target: TargetOptions,
    records: RecordOptions,
    out: Annotated[Path, typer.Option(help="The folder to make for the report.")],
    budget: Annotated[str, typer.Option(help="At most so long in all, e.g. 90s, 10m, 2h.")] = "10m",
    memory: Annotated[str | None, typer.Option(help="At most so much memory for the whole process, e.g. 8G.")] = None,
    what_if: Annotated[
        str | None, typer.Option(help="Defences to audit again, e.g. int8,prune50,noise,dp (dp needs labels).")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="How it was trained, e.g. sgd,momentum or adam,augmentation; for the report.")
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(help="Exit with 1 at this verdict or a worse one: recovered, partly-recovered, inconclusive."),
    ] = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Keep recovered pictures sharp in the report.")] = False,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Attack a model of your own within a budget, and write a report for its release decision.

    Example: exhume audit head.safetensors --features V.safetensors --activation relu --samples 20 --out audit
    """
    from exhume.auditing.audit import AuditSettings, run_audit
    from exhume.auditing.from_files import read_question, write_audit
    from exhume.experiments.run import check_new
    from exhume.theory import explain, gauge
    from exhume.units import parse_bytes, parse_duration
    from exhume.values import parse_names
    from exhume.verdicts import parse_verdict

    check_new(out)
    limit = None if fail_on is None else parse_verdict(fail_on)
    settings = AuditSettings(
        seconds=parse_duration(budget),
        memory_bytes=None if memory is None else parse_bytes(memory),
        samples=records.samples,
        what_if=parse_names(what_if) or (),
        recipe=parse_names(recipe) or (),
        seed=seed,
    )
    with _seed_bar(target.initial_seed_search) as tried:
        question = read_question(_request(target, records), tried)
    seen = question.target.observation
    n = records.samples if question.truth is None else len(question.truth.inputs)
    say(explain(gauge(seen.p, seen.d, n))[0], json)
    for note in question.target.notes:
        say(note, json)
    with _bars() as watch:
        done = run_audit(question, settings, watch)
    page = write_audit(done, out, reveal)
    _tell(done, page, json)
    if json:
        print_json(done.summary | {"report": str(page)})
    if done.interrupted:
        raise typer.Exit(130)
    if limit is not None and done.verdict.severity >= limit.severity:
        say(f"failed on the verdict {done.verdict.title.lower()} (--fail-on {fail_on})", as_json=True)
        raise typer.Exit(1)


def _request(target: TargetOptions, records: RecordOptions) -> "Request":
    from exhume.auditing.from_files import FLAT, Request
    from exhume.values import parse_counts

    shape = None
    if target.image_shape is not None:
        shape = FLAT if target.image_shape == "flat" else parse_counts(target.image_shape)
    return Request(
        weights=target.weights,
        model=target.model,
        head=target.head,
        features=target.features,
        activation=target.activation,
        initial="zero" if target.initial == "zero" else None if target.initial is None else Path(target.initial),
        initial_seed=target.initial_seed,
        initial_seed_search=target.initial_seed_search,
        input_shape=shape,
        truth=records.source(records.truth),
        control=records.source(records.control),
        norm=target.row_norm,
        command=("exhume", *sys.argv[1:]),
    )


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


def _tell(done: "Audit", page: Path, json: bool) -> None:
    say(done.sentence, json)
    say(done.said["confidence"], json)
    for line in done.subject.attempts:
        told = "" if line["told"] is None else f", told n = {line['told']}"
        how = line["outcome"] or f"could not run: {line['note']}"
        say(f"  {line['method']} (seed {line['seed']}{told}): {how}, {line['seconds']:.1f} s", json)
        if line["method"] == "silent-units":
            say(f"    {line['why']}", json)
    for line in done.subject.what_if:
        say(f"  what if {line['name']}: {line['title'].lower()}{_share(line)}", json)
    say(f"wrote {page}", json)


def _share(line: dict[str, Any]) -> str:
    return "" if line["recovered"] is None else f" ({line['recovered']} of {line['samples']})"
