"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Every random number follows from it.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="PACKAGE.MODULE:FACTORY", help="Your own code that builds the network, if the run was made with it."
    ),
]
