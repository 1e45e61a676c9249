"""What each column of a table is to the network, and in which order it reads them, as the owner says it in JSON.

    {"age": "number", "ward": "one-hot", "sex": "drop-first", "code": "ordinal", "grade": ["low", "middle", "high"]}

The order is that of the file; columns that are not named are no inputs. A list gives the categories of an ordinal
column in their order.
"""

from pathlib import Path
from typing import Any, get_args

import numpy as np

from exhume.data.tables.table import Column, Encoding, Table, shown, texts_of
from exhume.errors import ExhumeError, UsageError
from exhume.formats.json_file import read_json_object

NUMBER = "number"
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
KINDS = f"{NUMBER}, {', '.join(ENCODINGS)} or a list of categories"


def arranged(table: Table, path: Path) -> Table:
    kinds = read_json_object(path)
    known = {column.name: at for at, column in enumerate(table.columns)}
    stranger = next((name for name in kinds if name not in known), None)
    if stranger is not None or not kinds:
        some = ", ".join(list(known)[:8])
        raise UsageError(f"expected columns of the table in {path} ({some}), found {str(stranger)[:40]!r}")
    columns, values = [], []
    for name, kind in kinds.items():
        at = known[name]
        column, own = _column(table.columns[at], table.values[at], kind, path)
        columns.append(column)
        values.append(own)
    return Table(tuple(columns), tuple(values))


def _column(column: Column, values: np.ndarray, kind: Any, path: Path) -> tuple[Column, np.ndarray]:
    if kind == NUMBER:
        if column.categories is not None:
            raise UsageError(f"expected numbers in the column {column.name!r}, as {path} says, found {values[0]!r}")
        return column, values
    texts = texts_of(values)
    if isinstance(kind, list) and kind and all(isinstance(one, str | int | float) for one in kind):
        categories = tuple(one if isinstance(one, str) else shown(float(one)) for one in kind)
        lost = next((text for text in texts if text not in categories), None)
        if lost is not None or len(set(categories)) != len(categories):
            found = "one twice" if lost is None else f"no {lost!r}"
            raise UsageError(f"expected every category of {column.name!r} once in {path}, found {found}")
        return Column(column.name, categories, encoding="ordinal"), texts
    encoding = next((one for one in ENCODINGS if one == kind), None)
    if encoding is None:
        raise ExhumeError(f"expected {KINDS} for {column.name!r} in {path}, found {str(kind)[:40]!r}")
    if column.categories is None:  # a code: in the order of its numbers, as scikit-learn sorts them
        return Column(column.name, tuple(map(shown, np.unique(values).tolist())), encoding=encoding), texts
    return Column(column.name, column.categories, encoding=encoding), texts
