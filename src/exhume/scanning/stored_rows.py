"""Records that lie in a file as they are: matrices with one record a row."""

import math
from typing import Any

import numpy as np

from exhume.formats.contents import StoredArray
from exhume.scanning.finding import StoredRows


def rows_of(array: Any, numbers: tuple[int, ...] | None = None) -> StoredRows | None:
    """The first dimension counts records. None where there is no record, or no array."""
    if not isinstance(array, StoredArray) or len(array.shape) < 2 or array.numbers == 0:
        return None
    count, columns = array.shape[0], math.prod(array.shape[1:])
    known = numbers if numbers is not None and len(numbers) == count else None
    return StoredRows(count, columns, lambda: np.asarray(array.read()).reshape(count, columns), known)


def whole_numbers(array: Any) -> tuple[int, ...] | None:
    """Which rows of the training set they were, where a file says so."""
    if not isinstance(array, StoredArray) or len(array.shape) != 1:
        return None
    read = np.asarray(array.read())
    return tuple(map(int, read)) if read.dtype.kind in "iu" else None
