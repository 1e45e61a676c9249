"""`exhume train`: make a victim, so that an attack has something to be measured on."""

from typing import Any

import typer
import typer.core

from exhume.requests.command_options import add_command
from exhume_papers.cli.making import make_run
from exhume_papers.making.victim_request import KINDS, FactoryRequest

FACTORY = "package.module:factory"


class VictimGroup(typer.core.TyperGroup):
    """Any name with a colon is the first argument of the command for a user's own model."""

    def resolve_command(self, ctx: Any, args: Any) -> Any:
        return super().resolve_command(ctx, [FACTORY, *args] if ":" in args[0] else args)


app = typer.Typer(
    cls=VictimGroup,
    rich_markup_mode=None,
    help="Train a victim and write a run folder. Networks that are interrupted go on from where they were.\n\n"
    "Example: exhume train rf --data faces --samples 20 --ratio 4 --out runs/a",
)
for kind, asked in KINDS.items():
    add_command(app, kind, make_run, asked)
add_command(app, FACTORY, make_run, FactoryRequest)
