"""A table of records, and the rows of numbers that a model saw of it.

A column of numbers becomes one number. A column of texts becomes one number per category, 1 for its own and 0 for the
others (*one-hot*); the same without the first category (*drop-first*); or the place of the category (*ordinal*). Each
of these numbers may be scaled, (value - centre) / scale. Back in the owner's units a number is rounded as the table
writes its column, and of the categories the nearest is taken.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError, UsageError

Cell = float | str
MOST_DECIMALS = 6
"""Of a column that is held to be equal: more than float32 tells of a number near one."""
MOST_NUMBERS = 200_000_000
"""Of all records as a model sees them."""


Encoding = Literal["one-hot", "drop-first", "ordinal"]


@dataclass(frozen=True)
class Column:
    """`categories`: None for numbers. `decimals`: with how many the table writes them; -2 of a column of hundreds.
    `centres` and `scales`: one for each number that it becomes; none for numbers as they are."""

    name: str
    categories: tuple[str, ...] | None = None
    decimals: int = MOST_DECIMALS
    encoding: Encoding = "one-hot"
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        if self.categories is None or self.encoding == "ordinal":
            return 1
        return len(self.categories) - (self.encoding == "drop-first")

    def same(self, one: Cell, other: Cell) -> bool:
        if isinstance(one, str) or isinstance(other, str):
            return one == other
        return round(one, self.decimals) == round(other, self.decimals)

    def scaled(self, centres: Sequence[float], scales: Sequence[float]) -> "Column":
        return replace(self, centres=tuple(map(float, centres)), scales=tuple(map(float, scales)))

    def numbers(self, values: np.ndarray) -> Iterator[np.ndarray]:
        """What cells of this column become, one number of all of them after another.

        >>> cells = np.array(["Ulm", "Bern"], dtype=object)
        >>> [made.tolist() for made in Column("city", ("Bern", "Oslo", "Ulm"), encoding="drop-first").numbers(cells)]
        [[0.0, 0.0], [1.0, 0.0]]
        """
        for plain, centre, scale in zip(self._plain(values), *self._scaling(), strict=True):
            yield (plain - centre) / scale

    def cell(self, numbers: Sequence[float]) -> Cell:
        """
        >>> Column("city", ("Bern", "Oslo", "Ulm"), encoding="drop-first").cell([0.1, 0.2])
        'Bern'
        """
        plain = [value * scale + centre for value, centre, scale in zip(numbers, *self._scaling(), strict=True)]
        if self.categories is None:
            value = round(plain[0], self.decimals)
            return 0.0 if value == 0 else value
        if self.encoding == "ordinal":
            return self.categories[min(max(round(plain[0]), 0), len(self.categories) - 1)]
        if self.encoding == "drop-first":
            plain = [0.5, *plain]  # the category of zeros, unless one of the others is nearer to one
        return self.categories[plain.index(max(plain))]

    def _plain(self, values: np.ndarray) -> Iterator[np.ndarray]:
        if self.categories is None:
            yield values
        elif self.encoding == "ordinal":
            places = {category: float(place) for place, category in enumerate(self.categories)}
            yield np.array([places[value] for value in values])
        else:
            for category in self.categories[self.encoding == "drop-first" :]:
                yield (values == category).astype(np.float64)

    def _scaling(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.centres or (0.0,) * self.width, self.scales or (1.0,) * self.width


def shown(cell: Cell) -> str:
    """
    >>> shown(3.0), shown(0.25), shown("Ulm")
    ('3', '0.25', 'Ulm')
    """
    return cell if isinstance(cell, str) else f"{cell:.12g}"


@dataclass(frozen=True, eq=False)
class Table:
    """Records in the owner's units, kept by columns: an array of numbers, or one of texts, for each."""

    columns: tuple[Column, ...]
    values: tuple[np.ndarray, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.values[0]) if self.values else 0

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    def record(self, number: int) -> tuple[Cell, ...]:
        return tuple(_cell(values[number]) for values in self.values)

    def without(self, name: str) -> tuple["Table", tuple[Cell, ...]]:
        """The table without a column, and that column."""
        at = next((at for at, column in enumerate(self.columns) if column.name == name), None)
        if at is None:
            some = ", ".join(column.name for column in self.columns[:8])
            raise UsageError(f"expected a column {name!r} in the table, found {some}")
        rest = Table(self.columns[:at] + self.columns[at + 1 :], self.values[:at] + self.values[at + 1 :])
        return rest, tuple(map(_cell, self.values[at]))

    def like(self, other: "Table") -> "Table":
        """The same records with the columns of another table: its categories, its scaling."""
        names, theirs = [column.name for column in self.columns], [column.name for column in other.columns]
        if names != theirs:
            raise UsageError(
                f"expected the columns {', '.join(theirs[:8])} in both tables, found {', '.join(names[:8])}"
            )
        made = [self._like(at, column) for at, column in enumerate(other.columns)]
        return Table(other.columns, tuple(made))

    def _like(self, at: int, column: Column) -> np.ndarray:
        mine, values = self.columns[at], self.values[at]
        if column.categories is None:
            if mine.categories is not None:
                raise UsageError(f"expected numbers in the column {column.name!r} of both tables, found {values[0]!r}")
            return values
        texts = texts_of(values)
        strangers = set(texts) - set(column.categories)
        if strangers:
            known = tuple(sorted({*column.categories, *strangers}))
            raise UsageError(
                f"expected a category of {column.name!r} that training had, found {sorted(strangers)[0]!r}, which "
                f"makes {len(known)} instead of {len(column.categories)}"
            )
        return texts

    def scaled(self, centres: Sequence[float], scales: Sequence[float]) -> "Table":
        """With a centre and a scale for each column of numbers, or for each number that a record becomes."""
        numbers = [column for column in self.columns if column.categories is None]
        if len(centres) != len(scales) or len(scales) not in (len(numbers), self.width):
            raise UsageError(
                f"expected a scale for each of {len(numbers)} columns of numbers, or for each of {self.width} numbers "
                f"with those of the categories, found {len(scales)}"
            )
        if not all(map(math.isfinite, (*centres, *scales))) or 0.0 in scales:
            raise UsageError("expected finite scales above zero, found others")
        every, at, columns = len(scales) == self.width, 0, []
        for column in self.columns:
            if every or column.categories is None:
                part = slice(at, at + column.width)
                column, at = column.scaled(centres[part], scales[part]), at + column.width
            columns.append(column)
        return Table(tuple(columns), self.values)

    def chance(self) -> float:
        """How likely a record made of the most frequent cell of each column is to be any one record.

        >>> Table((Column("a"), Column("b")), (np.array([1.0, 1.0]), np.array([2.0, 3.0]))).chance()
        0.5
        """
        often = [Counter(values.tolist()).most_common(1)[0][1] / len(self) for values in self.values]
        return math.prod(often)

    def numbers(self) -> Float[Tensor, "n k"]:
        """The columns of numbers alone, in the owner's units."""
        kept = [values for values, column in zip(self.values, self.columns, strict=True) if column.categories is None]
        return torch.from_numpy(np.stack(kept, axis=1) if kept else np.zeros((len(self), 0)))

    def rows(self) -> Float[Tensor, "n d"]:
        """As the model saw them."""
        if len(self) * self.width > MOST_NUMBERS:
            raise ExhumeError(
                f"expected at most {MOST_NUMBERS:,} numbers of the records of a table, found {len(self):,} records of "
                f"{self.width:,}; give fewer records"
            )
        made = np.empty((len(self), self.width), dtype=np.float32)
        at = 0
        for values, column in zip(self.values, self.columns, strict=True):
            for number in column.numbers(values):
                made[:, at] = number
                at += 1
        return torch.from_numpy(made)

    def back(self, row: Float[Tensor, " d"]) -> tuple[Cell, ...]:
        """One row of numbers in the owner's units: rounded as the table is, categories snapped."""
        values, cells, at = row.double().tolist(), [], 0
        for column in self.columns:
            cells.append(column.cell(values[at : at + column.width]))
            at += column.width
        return tuple(cells)


def texts_of(values: np.ndarray) -> np.ndarray:
    """
    >>> texts_of(np.array([3.0, 0.25])).tolist()
    ['3', '0.25']
    """
    return np.array([shown(_cell(value)) for value in values], dtype=object)


def _cell(value: Any) -> Cell:
    return value if isinstance(value, str) else float(value)
