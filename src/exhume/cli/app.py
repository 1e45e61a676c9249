"""The `exhume` command: its sub-commands, and what happens when something goes wrong."""

import io
import os
import sys
import time
from typing import Annotated, Any

import typer

from exhume.cli import attack, audit, evaluate, gauge, rank, report, scan, serve
from exhume.cli.beginning import begin
from exhume.cli.further import Commands
from exhume.cli.output import complain
from exhume.errors import ExhumeError
from exhume.requests.command_options import add_command
from exhume.version import VERSION

# the base of typer's own complaints; typer vendors it, under a private name
CommandLineError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="exhume",
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Digs training data out of a trained model's weights, so that you learn what it gives away before you "
    "publish it.\n\nExample: exhume demo",
)
add_command(app, "gauge", gauge.gauge)
add_command(app, "attack", attack.attack)
add_command(app, "evaluate", evaluate.evaluate)
add_command(app, "audit", audit.audit)
add_command(app, "scan", scan.scan)
add_command(app, "rank", rank.rank)
add_command(app, "report", report.report)
add_command(app, "serve", serve.serve)


def print_version(asked: bool) -> bool:
    if asked:
        typer.echo(f"exhume {VERSION}")
        raise typer.Exit()
    return asked


@app.callback()
def options(
    # eager: without it, typer would miss a command before it looks at this
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


def main(began: float | None = None) -> None:
    """Runs the command line and turns every failure into one line and an exit code: 1 could not, 2 wrong usage.

    `began`: the moment at which the command was given; None: now.
    """
    begin(time.monotonic() if began is None else began)
    # threads that wait without spinning: on a busy machine spinning costs several times the work itself
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):  # a terminal of another alphabet gets escapes, not a fault
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] or ["--help"]
    debug = "--debug" in arguments or os.environ.get("EXHUME_DEBUG") == "1"
    # --debug is welcome anywhere on the line, not only before the command
    arguments = (["--debug"] if debug else []) + [argument for argument in arguments if argument != "--debug"]
    try:
        command = typer.main.get_command(app)
        # not command.main(): it keeps Ctrl-C for itself and says nothing
        with command.make_context("exhume", arguments) as context:
            command.invoke(context)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except CommandLineError as problem:
        where = problem.ctx.command_path if problem.ctx else "exhume"
        complain(f"{problem.format_message()} (see '{where} --help')", debug)
        sys.exit(2)
    except ExhumeError as problem:
        complain(str(problem), debug)
        sys.exit(problem.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted", debug)
        sys.exit(130)
    except MemoryError:
        complain("expected enough memory, found none left; give a smaller --memory or fewer samples", debug)
        sys.exit(1)
    except BrokenPipeError:  # whoever read standard output (head, less) has left: nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as problem:
        complain(f"expected a working file system, found: {problem}", debug)
        sys.exit(1)
    except Exception as problem:
        complain(_explain(problem), debug)
        sys.exit(1)


def _explain(problem: Exception) -> str:
    """One line about an exception that nobody foresaw. torch reports a full memory as a RuntimeError of many lines."""
    text = str(problem)
    if "alloc" in text and "memory" in text:
        return f"expected enough memory, found: {text.splitlines()[0]}; give a smaller --memory or fewer samples"
    if "LinAlgError" in type(problem).__name__:  # torch's or numpy's: known by name, because importing them takes long
        reason = " ".join(text.split()).rstrip(".")
        return f"expected a system that can be solved, found: {reason}; look at the scale of the numbers, or for copies"
    return f"expected to get through, found a fault: {type(problem).__name__}: {text}; --debug shows where"
