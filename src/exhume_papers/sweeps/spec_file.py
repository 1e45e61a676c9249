"""A sweep as a TOML file. Complaints name the line."""

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError, UsageError
from exhume.regular_file import regular
from exhume_papers.sweeps.grid import Place, in_python
from exhume_papers.sweeps.plan import SweepPlan
from exhume_papers.sweeps.sweep import Sweep

SECTIONS = {"victim": "victims", "attack": "attacks"}
_HEADER = re.compile(r"\s*\[\[?\s*([\w-]+)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*=")


def read_spec(path: Path) -> Sweep:
    """The sweep that a file asks for; only its outer form is checked here, see `plan_spec`."""
    try:
        content = tomllib.loads(regular(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise ExhumeError(f"expected a readable sweep at {path}, found: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:  # no TOML, no UTF-8, or a number of thousands of digits
        raise UsageError(f"expected TOML in {path}, found: {problem}") from problem
    if "victim" not in content:
        raise UsageError(f"expected a section [[victim]] in {path}, found none")
    fields = {SECTIONS.get(key, key): _as_list(value, key) for key, value in content.items()}
    try:
        return Sweep.parse(**fields)
    except UsageError as problem:
        known = ", ".join([*SECTIONS, *(key for key in Sweep.model_fields if key not in SECTIONS.values())])
        complaint = re.sub(
            r"^expected the settings [\w, ]+, found", f"expected the settings {known}, found", str(problem)
        )
        raise UsageError(f"{path}: {complaint}") from problem


def plan_spec(path: Path, data_dir: str | None = None, code: Collection[str] = ()) -> tuple[Sweep, SweepPlan]:
    """The sweep of a file and every run of it, all checked. `code`: the factories that the file may name.

    A file must not choose what code runs, so one that names code which nobody allowed is refused before any is loaded.
    """
    sweep, place = read_spec(path), _line_finder(path)
    for entry, victim in enumerate(sweep.victims):
        kinds = victim.get("kind")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if isinstance(kind, str) and ":" in kind and kind not in code:
                raise UsageError(
                    f"{place('victim', entry, 'kind')}: expected code that you allow, found {kind!r}, which would run; "
                    f"look at it, then give --model {kind}"
                )
    return sweep, sweep.plan(place, data_dir)


def _as_list(value: Any, key: str) -> Any:
    """One section [victim] is as good as a list of one."""
    return [value] if key in SECTIONS and isinstance(value, dict) else value


def _line_finder(path: Path) -> Place:
    lines = path.read_text(encoding="utf-8").splitlines()

    def place(section: str, entry: int, key: str | None) -> str:
        line = _line_of(lines, section, entry, key)
        where = in_python(section, entry, key)
        return f"{path}: {where}" if line is None else f"{path} line {line}: {where}"

    return place


def _line_of(lines: list[str], section: str, entry: int, key: str | None) -> int | None:
    """The line of a key, or of its section where the key is not there.

    >>> _line_of(["seeds = 1", "[[victim]]", "kind = 'rf'", "[[victim]]", "kind = 'fr'"], "victim", 1, "kind")
    5
    """
    inside, seen, header = False, -1, None
    for number, line in enumerate(lines, start=1):
        opened = _HEADER.match(line)
        if opened:
            inside = opened[1] == section
            seen += inside
            if inside and seen == entry:
                header = number
            continue
        written = _KEY.match(line)
        if inside and seen == entry and written and written[1].replace("-", "_") == key:
            return number
    return header
