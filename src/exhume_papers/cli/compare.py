"""`exhume compare`: the whole family of attacks on one observation."""

from typing import TYPE_CHECKING, Annotated, ClassVar

from exhume.cli.output import print_json, say
from exhume.requests.kinds import Factory, Run, Seconds, Seed
from exhume.requests.request import Option, Request
from exhume.units import duration_text

if TYPE_CHECKING:
    from exhume_papers.studies.comparing import ComparedAttack


class CompareRequest(Request):
    command: ClassVar[str] = "compare"

    run: Run
    attacks: Annotated[str | None, Option("Comma-separated, e.g. split-newton,ntk; default: all.")] = None
    budget: Annotated[Seconds, Option("At most so long for each attack, e.g. 90s, 10m.", text=duration_text)] = 60.0
    dtype: Annotated[str, Option("float32 or float64.")] = "float32"
    model: Factory = None
    seed: Seed = 0


def compare(request: CompareRequest, json: bool) -> None:
    """Run several attacks on the weights of RUN and print one table; also compare.json and compare.png in the folder.

    Example: exhume compare runs/a --budget 60s
    """
    from exhume.experiments.run import RunFolder
    from exhume.files import write_json
    from exhume_papers.figures.compare_figure import draw_compared
    from exhume_papers.studies.comparing import as_json, compare_attacks

    folder = RunFolder.existing(request.run)
    names = [] if request.attacks is None else [name.strip() for name in request.attacks.split(",")]
    compared = compare_attacks(
        folder, names, request.budget, request.seed, request.dtype, request.model, lambda line: say(line, as_json=True)
    )
    result = as_json(folder, compared, request.budget)
    table, figure = request.run / "compare.json", request.run / "compare.png"
    write_json(table, result)
    draw_compared(result["attacks"], f"{folder.path.name}, at most {duration_text(request.budget)} each", figure)
    _print_table(compared, json)
    say(f"wrote {table} and {figure}", json)
    if json:
        print_json(result)


def _print_table(compared: "list[ComparedAttack]", json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    numbers = ("rho", "within 0.1", "cos > 0.9", "held-out loss")
    for column in ("attack", *numbers, "outcome", "seconds", "passes", "knows"):
        table.add_column(column, justify="left" if column in ("attack", "outcome", "knows") else "right")
    for row in compared:
        if row.reason is not None:
            continue
        table.add_row(
            row.name,
            _number(row.error, ".1e"),
            _number(row.recovered, ".0%"),
            _number(row.recognised, "d"),
            _number(row.held_out_loss, ".1e"),
            f"{row.outcome} ({row.trusted} of {row.candidates})",
            _number(row.seconds, ".1f"),
            _number(row.passes, ",.0f"),
            row.knowledge,
        )
    Console(stderr=json, width=160).print(table)
    for row in compared:
        if row.reason is not None:
            say(f"{row.name}: not made: {row.reason}", json)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
