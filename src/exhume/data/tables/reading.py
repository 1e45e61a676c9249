"""CSV by Python's own reader, Parquet by pyarrow. Every cell has to hold something: what a model saw of a gap nobody
can tell from the file."""

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exhume.data.tables.table import MOST_DECIMALS, Column, Table
from exhume.errors import ExhumeError
from exhume.formats.extras import require
from exhume.regular_file import regular

SUFFIXES = (".csv", ".tsv", ".parquet")
MOST_CELLS = 20_000_000
MOST_COLUMNS = 100_000
LARGEST_FILE = 2**30
MOST_CATEGORIES = 1000
FEWEST_TO_TELL = 5
"""Different numbers of a column that all end in zeros: fewer may do so by chance."""
LONGEST_CELL = 10_000
LARGEST_WHOLE = 1e15
"""Python writes larger numbers with an exponent."""
SMALLER = "give fewer records"
Made = tuple[Column, np.ndarray]


def read_table(path: Path) -> Table:
    made = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    columns, values = zip(*made, strict=True)
    return Table(columns, values)


def _check_names(names: Sequence[str], path: Path) -> None:
    if names and not names[0] and all(names[1:]):
        raise ExhumeError(
            f"expected a name of every column in {path}, found none of the first: pandas writes its index there; write "
            "the table with index=False"
        )
    if len(names) > MOST_COLUMNS:
        raise ExhumeError(f"expected at most {MOST_COLUMNS:,} columns in {path}, found {len(names):,}")
    if len(set(names)) != len(names) or not all(name and name.isprintable() for name in names):
        raise ExhumeError(f"expected columns of different names in {path}, found {', '.join(map(repr, names))[:120]}")


def _read_csv(path: Path) -> list[Made]:
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
    bare = bool(lines) and all(_number(cell) is not None for cell in lines[0])
    if len(lines) < 2 - bare:
        raise ExhumeError(f"expected records in {path}, found none")
    names = [f"x{at}" for at in range(len(lines[0]))] if bare else [name.strip() for name in lines.pop(0)]
    _check_names(names, path)
    return [_column(name, [line[at] for line in lines], path) for at, name in enumerate(names)]


def _lines(reader: Any, path: Path) -> Iterator[list[str]]:
    width = None
    for number, line in enumerate(reader, start=1):
        if not line:
            continue
        width = len(line) if width is None else width
        if width > MOST_COLUMNS:
            raise ExhumeError(f"expected at most {MOST_COLUMNS:,} columns in {path}, found {width:,}")
        if number == 1 and width == 1 and ";" in line[0]:
            raise ExhumeError(
                f"expected commas between the cells in {path}, found semicolons; write it with commas, and numbers "
                "with a point"
            )
        if len(line) != width:
            raise ExhumeError(f"expected {width} cells per line in {path}, found {len(line)} in line {number}")
        if number * width > MOST_CELLS or any(len(cell) > LONGEST_CELL for cell in line):
            raise ExhumeError(
                f"expected at most {MOST_CELLS:,} short cells in {path}, found more or longer ones; {SMALLER}"
            )
        yield line


def _read_parquet(path: Path) -> list[Made]:
    """Column by column: numbers as arrays, texts by their dictionary."""
    parquet = require("pyarrow.parquet", "tables", path)
    try:
        with parquet.ParquetFile(regular(path)) as file:
            meta = file.metadata
            if meta.num_rows * max(meta.num_columns, 1) > MOST_CELLS:
                raise ExhumeError(f"expected at most {MOST_CELLS:,} cells in {path}, found claims of more; {SMALLER}")
            schema = file.schema_arrow
            index = _index_of_pandas(schema)
            names = [name for name in schema.names if name not in index]
            _check_names(names, path)
            groups = [meta.row_group(at) for at in range(meta.num_row_groups)]
            parts = [group.column(at) for group in groups for at in range(group.num_columns)]
            if sum(part.total_uncompressed_size for part in parts) > LARGEST_FILE:
                raise ExhumeError(f"expected at most {LARGEST_FILE:,} bytes in {path}, found claims of more; {SMALLER}")
            if any(part.file_path for part in parts):
                raise ExhumeError(f"expected the columns in {path} itself, found some in other files")
            if not meta.num_rows or not names:
                raise ExhumeError(f"expected records in {path}, found none")
        texts = [name for name in names if str(schema.field(name).type).endswith("string")]
        with parquet.ParquetFile(regular(path), read_dictionary=texts) as file:  # else each text is written out
            table = file.read(columns=names if index else None, use_threads=False)
            return [_column_of_parquet(name, table.column(name), path) for name in names]
    except ExhumeError:
        raise
    except Exception as problem:  # whatever is wrong in a file of unknown origin shows in many ways
        found = " ".join(str(problem).split())[:120]
        raise ExhumeError(f"expected a whole Parquet file at {path}, found: {found}") from problem


def _index_of_pandas(schema: Any) -> set[str]:
    """Columns that are the index of a table of pandas, which a model does not see."""
    told = schema.pandas_metadata
    index = told.get("index_columns") if isinstance(told, dict) else None
    return {name for name in index if isinstance(name, str)} if isinstance(index, list) else set()


def _column_of_parquet(name: str, column: Any, path: Path) -> Made:
    types = require("pyarrow.types", "tables", path)
    if column.null_count:
        raise _no_value(name, column.is_null().to_numpy().argmax() + 1, path)
    kind = column.type
    if types.is_dictionary(kind) and not _is_text(kind.value_type, types):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        values = np.asarray(column.to_numpy(), dtype=np.float64)
        if not np.isfinite(values).all():
            raise _no_value(name, int(np.isfinite(values).argmin()) + 1, path)
        return Column(name, decimals=_most_decimals(values, kind) or -_tens(values)), values
    if not types.is_dictionary(kind):
        raise ExhumeError(f"expected numbers and texts in {path}, found {kind} in {name!r}")
    coded = column.unify_dictionaries().combine_chunks()
    used, codes = np.unique(np.asarray(coded.indices), return_inverse=True)
    known = coded.dictionary.take(used).to_pylist()
    if any(len(text) > LONGEST_CELL for text in known):
        raise ExhumeError(f"expected short cells in {path}, found longer ones in {name!r}")
    made, values = _column(name, known, path)
    return made, values[codes]


def _is_text(kind: Any, types: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _most_decimals(values: np.ndarray, kind: Any) -> int:
    if not str(kind).startswith(("float", "double", "halffloat")):
        return 0
    known = np.unique(values)
    if np.abs(known).max() < LARGEST_WHOLE and (known == np.floor(known)).all():
        return 0
    most = 0
    for value in known.tolist():
        most = max(most, _decimals(value))
        if most == MOST_DECIMALS:
            break
    return most


def _no_value(name: str, number: int, path: Path) -> ExhumeError:
    return ExhumeError(
        f"expected a value in every cell of {path}, found none in record {number} of {name!r}; fill it as the "
        "model saw it"
    )


def _too_many(name: str, count: int, path: Path) -> ExhumeError:
    return ExhumeError(
        f"expected at most {MOST_CATEGORIES:,} categories of {name!r} that can be printed in {path}, found "
        f"{count:,}; leave out columns that the model did not see"
    )


def _column(name: str, cells: Sequence[str], path: Path) -> Made:
    """Of texts: numbers, where all of them are."""
    for number, cell in enumerate(cells, start=1):
        if not cell.strip():
            raise _no_value(name, number, path)
    numbers = [_number(cell) for cell in cells]
    known = [number for number in numbers if number is not None]
    if len(known) == len(cells):
        values = np.array(known, dtype=np.float64)
        return Column(name, decimals=max(map(_decimals, cells)) or -_tens(values)), values
    texts = np.array([sys.intern(cell.strip()) for cell in cells], dtype=object)
    categories = tuple(sorted(set(texts)))
    if len(categories) > MOST_CATEGORIES or not all(text.isprintable() for text in categories):
        raise _too_many(name, len(categories), path)
    return Column(name, categories), texts


def _number(cell: Any) -> float | None:
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _tens(values: np.ndarray) -> int:
    """How many zeros all numbers of a column end in; none of a column with too few numbers to tell.

    >>> _tens(np.array([1200.0, 300.0, 500.0, 0.0, 700.0])), _tens(np.array([1200.0, 300.0]))
    (2, 0)
    """
    known = np.unique(values)
    if len(known) < FEWEST_TO_TELL:
        return 0
    common = str(math.gcd(*map(int, known)))
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
