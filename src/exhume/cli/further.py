"""Commands that other packages add: entry points of the group `exhume.commands`, each a function or a typer app.

    [project.entry-points."exhume.commands"]
    bench = "exhume_papers.cli.bench:bench"

They are loaded when they are asked for or listed. One that cannot be loaded costs a line, and not the others.
"""

from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from exhume.cli.output import complain
from exhume.requests.command_options import add_command, takes_request

GROUP = "exhume.commands"


class Commands(TyperGroup):
    """exhume's own commands, and below them those of each package that brings more."""

    @cached_property
    def _waiting(self) -> dict[str, EntryPoint]:
        """What has not been loaded. The names of exhume's own commands stay its own."""
        return {entry.name: entry for entry in sorted(entry_points(group=GROUP)) if entry.name not in self.commands}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self._waiting:
            entry = self._waiting.pop(cmd_name)
            try:
                self.commands[cmd_name] = _command(entry)
            except Exception as problem:
                complain(f"expected a command {cmd_name} in {entry.value}, found {type(problem).__name__}: {problem}")
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            for name in tuple(self._waiting):  # one of them may be what was meant
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections = {"Commands": list(self.commands)}
        for name, entry in tuple(self._waiting.items()):
            if self.get_command(ctx, name) is not None:
                sections.setdefault(f"Commands of {entry.module.partition('.')[0]}", []).append(name)
        space = formatter.width - 6 - max(map(len, self.commands))
        for heading, names in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(space)) for name in names])


def _command(entry: EntryPoint) -> Any:
    found = entry.load()
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    if takes_request(found):
        add_command(app, entry.name, found)
    else:
        app.command(entry.name)(found)
    return typer.main.get_command(app)
