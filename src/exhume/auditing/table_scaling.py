"""How the columns of numbers were scaled before training: as said by a word, a JSON file, or a scikit-learn scaler."""

from pathlib import Path
from typing import Any

import numpy as np

from exhume.data.tables.table import Table
from exhume.errors import ExhumeError, UsageError
from exhume.formats.contents import StoredObject
from exhume.formats.json_file import read_json_object
from exhume.formats.reading import read_contents

WORDS = ("none", "standard", "standard-all", "minmax")
SCALERS = {
    "StandardScaler": ("mean_", "scale_"),
    "RobustScaler": ("center_", "scale_"),
}


def scale(table: Table, how: str) -> Table:
    """`standard` and `minmax` are fitted to the table itself, as scikit-learn's scalers are to a training set;
    `standard-all` scales the numbers that categories become as well."""
    if how == "none":
        return table
    if how == "standard-all":
        rows = table.rows().double().numpy()
        deviations = rows.std(axis=0)
        return table.scaled(rows.mean(axis=0).tolist(), np.where(deviations > 0, deviations, 1.0).tolist())
    numbers = table.numbers().numpy()
    if how == "standard":
        deviations = numbers.std(axis=0)
        return table.scaled(numbers.mean(axis=0).tolist(), np.where(deviations > 0, deviations, 1.0).tolist())
    if how == "minmax":
        spans = numbers.max(axis=0) - numbers.min(axis=0)
        return table.scaled(numbers.min(axis=0).tolist(), np.where(spans > 0, spans, 1.0).tolist())
    path = Path(how)
    if not path.is_file():
        raise UsageError(f"expected a scaling out of {', '.join(WORDS)} or a file, found {how[:80]!r}")
    return _from_json(table, path) if path.suffix == ".json" else _from_skops(table, path)


def _from_json(table: Table, path: Path) -> Table:
    """{"column": [centre, scale], ...} for every column of numbers; a list of such pairs, or nothing, for one of
    categories."""
    scalers = read_json_object(path)
    pairs: list[list[float]] = []
    for column in table.columns:
        given = scalers.get(column.name)
        if given is None and column.categories is not None:
            pairs.extend([[0.0, 1.0]] * column.width)
        elif column.categories is None and not _is_pair(given):
            raise ExhumeError(f"expected [centre, scale] of {column.name!r} in {path}, found {str(given)[:40]!r}")
        elif isinstance(given, list) and _is_pair(given) and column.width == 1:
            pairs.append(given)
        elif isinstance(given, list) and len(given) == column.width and all(map(_is_pair, given)):
            pairs.extend(given)
        else:
            raise ExhumeError(
                f"expected {column.width} pairs [centre, scale] of {column.name!r} in {path}, found {str(given)[:40]!r}"
            )
    return table.scaled([float(pair[0]) for pair in pairs], [float(pair[1]) for pair in pairs])


def _is_pair(given: Any) -> bool:
    return isinstance(given, list) and len(given) == 2 and all(map(_is_number, given))


def _is_number(value: object) -> bool:
    """One that fits a float: JSON has larger whole numbers."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**1000)


def _from_skops(table: Table, path: Path) -> Table:
    found = list(read_contents(path).objects_of(*SCALERS, "MinMaxScaler"))
    if len(found) != 1:
        raise ExhumeError(f"expected one {', '.join(SCALERS)} or MinMaxScaler in {path}, found {len(found)}")
    centres, scales = _numbers(found[0], path)
    return table.scaled(centres.tolist(), scales.tolist())


def _numbers(scaler: StoredObject, path: Path) -> tuple[np.ndarray, np.ndarray]:
    names = SCALERS.get(scaler.class_name, ("min_", "scale_"))
    arrays = [scaler.array(name) for name in names]
    if arrays[0] is None or arrays[1] is None:
        raise ExhumeError(f"expected {' and '.join(names)} of a fitted {scaler.class_name} in {path}, found none")
    first, second = (np.asarray(array.read(), np.float64).ravel() for array in arrays if array is not None)
    if scaler.class_name == "MinMaxScaler":  # x * scale_ + min_
        with np.errstate(divide="ignore", invalid="ignore"):
            return -first / second, 1 / second
    return first, second
