"""The scan of a file, where this installation has one: training data that lies in it, and what leads to it."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.private_paths import without_folders

SCANNER = "exhume.scanning"
MOST_SHOWN = 20
FIRST_LOOK = "First look, by names and sizes, until the whole file is here."
KEYS = ("what", "where", "certainty", "gives_away", "remedy")


def can_scan() -> bool:
    return find_spec(SCANNER) is not None


def scan_file(path: Path, numbers: bool = True) -> dict[str, Any] | None:
    """One sentence and the findings, the worst first; None where there is no scanner, and nothing is said then.

    Without `numbers` it is a first look, at a file of which only names, shapes and small parts are there, and says so.
    """
    if not can_scan():
        return None
    look = import_module("exhume.scanning.scan").scan
    try:
        told = look(path, numbers=numbers).to_json()
    except ExhumeError as problem:
        return {"sentence": without_folders(str(problem), path.parent), "findings": [], "more": 0}
    found = told["findings"]
    shown = [{key: str(finding.get(key, "")) for key in KEYS} for finding in found[:MOST_SHOWN]]
    sentence = told["sentence"] if numbers else f"{FIRST_LOOK} {told['sentence']}"
    return {"sentence": sentence, "findings": shown, "more": len(found) - len(shown)}
