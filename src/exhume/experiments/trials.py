"""Trials of a study that are run once: what is in the file is not run again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from exhume.files import write_text


class Trials:
    """Results by a description of their trial, one line of JSON each, so that a study that was stopped goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a process was killed while it wrote its last line
            write_text(path, whole)
        self.done: dict[str, Any] = {entry["trial"]: entry["found"] for entry in map(json.loads, whole.splitlines())}

    def __call__(self, description: dict[str, Any], run: Callable[[], Any]) -> Any:
        """What the trial of that description found: JSON, from the file or from running it."""
        key = json.dumps(description, sort_keys=True, default=_as_json)
        if key not in self.done:
            found = json.loads(json.dumps(run()))
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"trial": key, "found": found}) + "\n")
            self.done[key] = found
        return self.done[key]


def _as_json(thing: object) -> Any:
    if isinstance(thing, BaseModel):
        return thing.model_dump(mode="json")
    raise TypeError(f"expected what JSON can hold, found {type(thing).__name__}")
