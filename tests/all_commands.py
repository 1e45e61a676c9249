"""Every command of the program, and the model that each is made from."""

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import typer

from exhume.cli.app import app
from exhume.cli.further import GROUP
from exhume.requests.command_options import RequestCommand
from exhume.requests.request import Request


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    further = [entry.name for entry in entry_points(group=GROUP)] if not words else []
    for name in [*group.list_commands(typer.Context(group)), *further]:
        command = group.get_command(typer.Context(group), name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))
MODELS: dict[str, type[Request]] = {
    " ".join(words): command.asked.complete()
    for words, command in COMMANDS.items()
    if isinstance(command, RequestCommand)
}
