"""The runs that lie in a folder."""

from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.files import read_json


def list_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """The summary of every run directly below a folder, by name. Hidden (unfinished) folders are passed over."""
    if not folder.is_dir():
        raise ExhumeError(f"expected a folder of runs at {folder}, found none")
    summaries = sorted(folder.glob("*/summary.json"))
    return {path.parent.name: read_json(path) for path in summaries if not path.parent.name.startswith(".")}
