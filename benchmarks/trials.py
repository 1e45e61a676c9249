"""Trials of a study that are run once: what is in the file is not run again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from exhume.errors import ExhumeError
from exhume.files import SCHEMA, check_schema, write_text
from exhume.regular_file import regular
from exhume.strict_json import parse_json


class Trials:
    """Results by a description of their trial, one line of JSON each, so that a study that was stopped goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = self._text()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a process was killed while it wrote its last line
            write_text(path, whole)
        self.done: dict[str, Any] = {}
        for number, line in enumerate(whole.split("\n")[:-1], start=1):
            self._read(number, line)

    def __call__(self, description: dict[str, Any], run: Callable[[], Any]) -> Any:
        """What the trial of that description found: JSON, from the file or from running it."""
        key = json.dumps(description, sort_keys=True, default=_as_json)
        if key not in self.done:
            line = self._line(key, run())
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            except OSError as problem:
                raise ExhumeError(f"expected a writable file {self.path}, found: {problem.strerror}") from problem
            self.done[key] = json.loads(line)["found"]
        return self.done[key]

    def _text(self) -> str:
        try:
            return regular(self.path).read_text(encoding="utf-8") if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as problem:
            raise ExhumeError(f"expected a readable text at {self.path}, found: {problem}") from problem

    def _read(self, number: int, line: str) -> None:
        try:
            entry = parse_json(line)
            if not isinstance(entry, dict):
                raise TypeError(type(entry).__name__)
            check_schema(entry, self.path)
            self.done[str(entry["trial"])] = entry["found"]
        except (ValueError, RecursionError, TypeError, KeyError) as problem:
            raise ExhumeError(
                f"expected a trial in line {number} of {self.path}, found something else: {problem}; delete that line, "
                "and it is run again"
            ) from problem

    def _line(self, key: str, found: Any) -> str:
        try:
            return json.dumps({"schema": SCHEMA, "trial": key, "found": found}, allow_nan=False)
        except ValueError as problem:
            raise ExhumeError(f"expected finite numbers from the trial {key}, found others: {problem}") from problem


def _as_json(thing: object) -> Any:
    if isinstance(thing, BaseModel):
        return thing.model_dump(mode="json")
    raise TypeError(f"expected what JSON can hold, found {type(thing).__name__}")
