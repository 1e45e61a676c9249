"""What a file of weights is, and what its last layer can hold, from names and shapes alone.

Of a safetensors file the header is read, of a PyTorch file the small pickle that names its tensors; their numbers stay
on the disk. So the answer does not wait for a large file. Of a table the records are counted.
"""

import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exhume.data.tables.reading import SUFFIXES, read_table
from exhume.errors import ExhumeError
from exhume.formats.reading import kind_of, read_contents
from exhume.private_paths import without_folders
from exhume.serving.pages import gauge_drawing
from exhume.tensor_header import read_header
from exhume.theory import ZONE_TITLES, explain, gauge

Shape = tuple[int, ...]
MOST_LISTED = 60
RECORDS = "inputs"
"""The tensor that a file of records has."""
ROWS_OF_FEATURES = "V"


@dataclass(frozen=True)
class Measured:
    """`p` is how many numbers `head` has, the last matrix; `d` how wide `first` is, which reads the inputs.

    Both are guesses from the order of the layers, for the user to correct. `d` is None where one matrix is all there
    is: it may read features. `rows` is the number of records, in a file of records; `columns` are those of a table.
    """

    format: str
    shapes: dict[str, Shape]
    parameters: int
    head: str | None
    first: str | None
    p: int | None
    d: int | None
    rows: int | None = None
    columns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        listed = [
            {"name": name if name.isprintable() else repr(name), "shape": list(shape), "numbers": math.prod(shape)}
            for name, shape in list(self.shapes.items())[:MOST_LISTED]
        ]
        told = {name: value for name, value in asdict(self).items() if name != "shapes"}
        return told | {"tensors": listed, "count": len(self.shapes)}


def measure(path: Path) -> Measured:
    """Refuses what is no file of tensors or records, with the reason; folders of this machine are not in it."""
    try:
        if path.suffix.lower() in SUFFIXES:
            return _of_table(path)
        format_name, shapes = _shapes(path)
    except ExhumeError as problem:
        raise ExhumeError(without_folders(str(problem), path.parent)) from problem
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2 and 0 not in shape}
    head = next(reversed(matrices), None) or max(shapes, key=lambda name: math.prod(shapes[name]), default=None)
    first = next((name for name in (RECORDS, ROWS_OF_FEATURES) if len(shapes.get(name, ())) > 1), None)
    if first is None and len(matrices) > 1:
        first = next(iter(matrices))
    records = shapes.get(RECORDS)
    return Measured(
        format=format_name,
        shapes=shapes,
        parameters=sum(math.prod(shape) for shape in shapes.values()),
        head=head,
        first=first,
        p=None if head is None else math.prod(shapes[head]) or None,
        d=None if first is None else math.prod(shapes[first][1:]) or None,
        rows=None if not records else records[0],
    )


def _of_table(path: Path) -> Measured:
    table = read_table(path)
    kind = "Parquet" if path.suffix.lower() == ".parquet" else "CSV"
    names = tuple(column.name for column in table.columns)
    return Measured(kind, {}, 0, None, None, None, table.width, len(table), names)


def gauge_lines(p: int, d: int, n: int | None) -> dict[str, Any]:
    """The gauge as the page shows it: the zone, and what follows from it in sentences."""
    result = gauge(p, d, n)
    return {
        "zone": result.zone,
        "title": ZONE_TITLES[result.zone],
        "ratio": result.ratio,
        "capacity": result.capacity,
        "sentences": explain(result),
        "drawing": gauge_drawing(result),
    }


def in_order(name: str) -> list[tuple[int, str]]:
    """A key for sorting names as people count: safetensors files have them by letters.

    >>> sorted(["layers.10.weight", "layers.2.weight", "head.weight"], key=in_order)
    ['head.weight', 'layers.2.weight', 'layers.10.weight']
    """
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"([0-9]{1,9})", name)]


def _shapes(path: Path) -> tuple[str, dict[str, Shape]]:
    with path.open("rb") as file:
        archive = file.read(2) == b"PK"
    if not archive and path.suffix == ".safetensors":
        entries = read_header(path).entries
        return "safetensors", {name: entries[name].shape for name in sorted(entries, key=in_order)}
    kind = kind_of(path)
    if kind not in (None, "safetensors", "torch"):
        arrays = read_contents(path, kind).arrays
        if not arrays:
            raise ExhumeError(f"expected arrays with names in {path}, found none that can be measured")
        return kind, {name: array.shape for name, array in arrays.items()}
    from exhume.observing.weights_file import read_weights  # which takes torch: only for files that need it

    found = read_weights(path)
    return found.kind, {name: tuple(tensor.shape) for name, tensor in found.tensors.items()}
