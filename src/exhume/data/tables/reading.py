"""CSV by Python's own reader, Parquet by pyarrow. Every cell has to hold something: what a model saw of a gap nobody
can tell from the file."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exhume.data.tables.table import MOST_DECIMALS, Cell, Column, Table
from exhume.errors import ExhumeError
from exhume.formats.extras import require
from exhume.regular_file import regular

SUFFIXES = (".csv", ".tsv", ".parquet")
MOST_CELLS = 50_000_000
LARGEST_FILE = 2**30
MOST_CATEGORIES = 1000
FEWEST_TO_TELL = 5
"""Different numbers of a column that all end in zeros: fewer may do so by chance."""
LONGEST_CELL = 10_000


def read_table(path: Path) -> Table:
    names, records = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    if not records:
        raise ExhumeError(f"expected records in {path}, found none")
    if len(set(names)) != len(names) or not all(name and name.isprintable() for name in names):
        raise ExhumeError(f"expected columns of different names in {path}, found {', '.join(map(repr, names))[:120]}")
    columns, values = [], []
    for at, name in enumerate(names):
        column, cells = _column(name, [record[at] for record in records], path)
        columns.append(column)
        values.append(cells)
    return Table(tuple(columns), tuple(zip(*values, strict=True)))


def _read_csv(path: Path) -> tuple[list[str], list[list[Any]]]:
    """The first line has the names of the columns, unless it is all numbers."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ExhumeError(f"expected at most {LARGEST_FILE:,} bytes of CSV at {path}, found more")
        with regular(path).open(encoding="utf-8-sig", newline="") as file:
            lines = list(_lines(csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ","), path))
    except OSError as problem:
        raise ExhumeError(f"expected a readable file {path}, found: {problem.strerror}") from problem
    except (csv.Error, UnicodeDecodeError) as problem:
        raise ExhumeError(f"expected CSV in UTF-8 at {path}, found: {problem}") from problem
    if not lines:
        raise ExhumeError(f"expected records in {path}, found none")
    if all(_number(cell) is not None for cell in lines[0]):
        return [f"x{at}" for at in range(len(lines[0]))], lines
    return [name.strip() for name in lines[0]], lines[1:]


def _lines(reader: Any, path: Path) -> Iterator[list[str]]:
    width = None
    for number, line in enumerate(reader, start=1):
        if not line:
            continue
        width = len(line) if width is None else width
        if len(line) != width:
            raise ExhumeError(f"expected {width} cells per line in {path}, found {len(line)} in line {number}")
        if number * width > MOST_CELLS or any(len(cell) > LONGEST_CELL for cell in line):
            raise ExhumeError(f"expected at most {MOST_CELLS:,} short cells in {path}, found more or longer ones")
        yield line


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    parquet = require("pyarrow.parquet", "tables", path)
    try:
        with parquet.ParquetFile(regular(path)) as file:
            meta = file.metadata
            groups = [meta.row_group(at) for at in range(meta.num_row_groups)]
            parts = [group.column(at) for group in groups for at in range(group.num_columns)]
            if (
                meta.num_rows * max(meta.num_columns, 1) > MOST_CELLS
                or sum(p.total_uncompressed_size for p in parts) > LARGEST_FILE
            ):
                raise ExhumeError(f"expected at most {MOST_CELLS:,} cells in {path}, found claims of more")
            if any(part.file_path for part in parts):
                raise ExhumeError(f"expected the columns in {path} itself, found some in other files")
            table = file.read(use_threads=False)
            names = list(table.column_names)
            columns = [table.column(at).to_pylist() for at in range(len(names))]
    except ExhumeError:
        raise
    except Exception as problem:  # whatever is wrong in a file of unknown origin shows in many ways
        found = " ".join(str(problem).split())[:120]
        raise ExhumeError(f"expected a whole Parquet file at {path}, found: {found}") from problem
    return names, [list(record) for record in zip(*columns, strict=True)]


def _column(name: str, cells: list[Any], path: Path) -> tuple[Column, list[Cell]]:
    for number, cell in enumerate(cells, start=1):
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            raise ExhumeError(
                f"expected a value in every cell of {path}, found none in record {number} of {name!r}; fill it as the "
                "model saw it"
            )
        if not isinstance(cell, str | int | float | bool):
            raise ExhumeError(f"expected numbers and texts in {path}, found {type(cell).__name__} in {name!r}")
    numbers = [_number(cell) for cell in cells]
    known = [number for number in numbers if number is not None]
    if len(known) == len(cells):
        return Column(name, decimals=max(map(_decimals, cells)) or -_tens(known)), list(known)
    texts = [str(cell).strip() for cell in cells]
    categories = tuple(sorted(set(texts)))
    if len(categories) > MOST_CATEGORIES or not all(text.isprintable() for text in categories):
        raise ExhumeError(
            f"expected at most {MOST_CATEGORIES:,} categories of {name!r} that can be printed in {path}, found "
            f"{len(categories):,}; leave out columns that the model did not see"
        )
    return Column(name, categories), list(texts)


def _number(cell: Any) -> float | None:
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _tens(values: list[float]) -> int:
    """How many zeros all numbers of a column end in; none of a column with too few numbers to tell.

    >>> _tens([1200.0, 300.0, 500.0, 0.0, 700.0]), _tens([1200.0, 300.0])
    (2, 0)
    """
    if len(set(values)) < FEWEST_TO_TELL:
        return 0
    common = str(math.gcd(*map(int, values)))
    return min(MOST_DECIMALS, len(common) - len(common.rstrip("0")))


def _decimals(cell: Any) -> int:
    """
    >>> _decimals("1.50"), _decimals(3), _decimals(0.25), _decimals("1e-3")
    (2, 0, 2, 6)
    """
    text = str(cell).strip().lower()
    if "e" in text:
        return MOST_DECIMALS
    return 0 if text.endswith(".0") else min(MOST_DECIMALS, len(text.partition(".")[2]))
