"""`exhume scan`: what in an artefact is training data, or leads to it, without any attack."""

from typing import TYPE_CHECKING

import typer

from exhume.cli.output import print_json, printable, say
from exhume.requests.scan import ScanRequest

if TYPE_CHECKING:
    from exhume.scanning.scan import Scan

FAILING = {"data": ("yes",), "leads": ("yes", "leads"), "unread": ("yes", "leads", "unknown")}
MOST_SHOWN = 60


def scan(request: ScanRequest, json: bool) -> None:
    """List what in a file or folder is training data, or leads to it. Nothing in it is run; no attack is made.

    Example: exhume scan model.skops --fail-on data
    """
    from exhume.scanning.scan import scan as look

    done = look(request.path)
    _say(done, json)
    if request.rows is not None:
        from exhume.scanning.writing import write_rows  # which takes torch

        count = write_rows(done.findings, request.rows)
        say(f"wrote {count:,} stored records to {request.rows}", json)
    if request.sarif is not None:
        from exhume.scanning.writing import write_sarif

        write_sarif(done, request.sarif)
        say(f"wrote {request.sarif}", json)
    if json:
        print_json(done.to_json())
    failing = request.fail_on is not None and done.answer.value in FAILING[request.fail_on]
    if failing or (request.fail_on == "unread" and done.unread):
        say(f"failed: {done.answer.value} (--fail-on {request.fail_on})", as_json=True)
        raise typer.Exit(1)
    if request.fail_on is not None and done.missing_extras:
        # a gate that cannot look does not let through: what to install is known, unlike for a file that is broken
        without = [item.name for item in done.unread if item.extra is not None]
        more = f" and {len(without) - 1:,} more" if len(without) > 1 else ""
        say(
            f"failed: expected to read {printable(without[0])}{more}, found an extra not installed; "
            f"pip install 'exhume[{','.join(done.missing_extras)}]' (--fail-on {request.fail_on})",
            as_json=True,
        )
        raise typer.Exit(1)


def _say(done: "Scan", json: bool) -> None:
    """The answer first, then every finding, the worst first."""
    import sys

    from rich.console import Console

    console = Console(file=sys.stderr if json else sys.stdout, highlight=False, soft_wrap=True)
    colours = {"records": "bold red", "values": "bold yellow", "lead": "bold cyan"}
    console.print(f"[bold]{_text(done.sentence)}[/bold]")
    for finding in done.findings[:MOST_SHOWN]:
        colour = colours[finding.holds.value]
        console.print(
            f"\n[{colour}]{finding.holds.value}[/{colour}] ({finding.certainty.value}) {_text(finding.what)}\n"
            f"  where       {_text(finding.where)}\n"
            f"  gives away  {_text(finding.gives_away)}\n"
            f"  remedy      {_text(finding.remedy)}\n"
            f"  attack      {_text(finding.attack)}"
        )
    if len(done.findings) > MOST_SHOWN:
        console.print(f"\nand {len(done.findings) - MOST_SHOWN:,} more (--json lists all)")
    for item in done.unread[:MOST_SHOWN]:
        console.print(f"\n[bold]not read[/bold] {_text(item.name)}: {_text(item.reason)}")
    if len(done.unread) > MOST_SHOWN:
        console.print(f"\nand {len(done.unread) - MOST_SHOWN:,} more that could not be read (--json lists all)")


def _text(words: str) -> str:
    """Words out of files: neither markup nor anything that a terminal obeys."""
    from rich.markup import escape

    return escape(printable(words))
