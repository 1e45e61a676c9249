"""What is in a folder, but for times and memory: two runs are the same if this is."""

import csv
import hashlib
import json
import re
from pathlib import Path
from typing import Any

COST = re.compile(r"seconds|memory|^(written|finished)$")
"""Names of numbers that no two runs share."""
PLACE = "THIS-FOLDER"


def contents(folder: Path) -> dict[str, Any]:
    """Every file below a folder, hidden ones too, by its path, as something that can be compared."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): _content(path, folder) for path in files}


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The files that one has and the other has not, or that differ."""
    missing = [f"{name} is missing" for name in theirs.keys() - ours.keys()]
    surplus = [f"{name} is too many" for name in ours.keys() - theirs.keys()]
    return sorted(missing + surplus + [name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]])


def unreadable(folder: Path) -> list[str]:
    """Files with a final name that are not whole."""
    broken = []
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            try:
                _content(path, folder)
            except Exception as problem:  # whatever a reader says of half a file
                broken.append(f"{path.name}: {problem}")
    return broken


def temporaries(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.tmp"))


def _content(path: Path, folder: Path) -> Any:
    match path.suffix:
        case ".json":
            return without_costs(json.loads(path.read_text().replace(str(folder), PLACE)))
        case ".csv":
            with path.open(newline="") as file:
                return [without_costs(line) for line in csv.DictReader(file)]
        case ".safetensors":
            return _tensors(path)
        case ".html":  # the JSON beside it in a page; times are in its text as well
            return "</html>" in path.read_text()
    return path.read_bytes()


def _tensors(path: Path) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        header = json.loads((file.metadata() or {}).get("exhume", "null"))
        names = sorted(file.keys())
        digests = {name: hashlib.sha256(file.get_tensor(name).tobytes()).hexdigest() for name in names}
    digests.pop("trace", None)  # of a checkpoint: one of its columns is the clock
    return digests, without_costs(header)


def without_costs(value: Any) -> Any:
    """
    >>> without_costs({"loss": 1.0, "seconds": 2.0, "all": [{"peak_memory_mb": 3}]})
    {'loss': 1.0, 'all': [{}]}
    """
    if isinstance(value, dict):
        return {key: without_costs(item) for key, item in value.items() if not (key and COST.search(key))}
    return [without_costs(item) for item in value] if isinstance(value, list) else value
