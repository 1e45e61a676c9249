"""A table of records, and the rows of numbers that a model saw of it.

A column of numbers becomes one number, (value - centre) / scale. A column of texts becomes one number per category, 1
for its own and 0 for the others. Back in the owner's units a number is rounded as the table writes its column, and of
the categories the largest is taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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


@dataclass(frozen=True)
class Column:
    """`categories`: None for numbers. `decimals`: with how many the table writes them; -2 of a column of hundreds."""

    name: str
    categories: tuple[str, ...] | None = None
    decimals: int = MOST_DECIMALS
    centre: float = 0.0
    scale: float = 1.0

    @property
    def width(self) -> int:
        return 1 if self.categories is None else len(self.categories)

    def same(self, one: Cell, other: Cell) -> bool:
        if isinstance(one, str) or isinstance(other, str):
            return one == other
        return round(one, self.decimals) == round(other, self.decimals)


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
        texts = np.array([str(_cell(value)) for value in values], dtype=object)
        strangers = set(texts) - set(column.categories)
        if strangers:
            known = tuple(sorted({*column.categories, *strangers}))
            raise UsageError(
                f"expected a category of {column.name!r} that training had, found {sorted(strangers)[0]!r}, which "
                f"makes {len(known)} instead of {len(column.categories)}"
            )
        return texts

    def scaled(self, centres: Sequence[float], scales: Sequence[float]) -> "Table":
        """With a centre and a scale for each column of numbers, in their order."""
        numbers = [column for column in self.columns if column.categories is None]
        if not len(numbers) == len(centres) == len(scales):
            raise UsageError(f"expected a scale for each of {len(numbers)} columns of numbers, found {len(scales)}")
        if not all(map(math.isfinite, (*centres, *scales))) or 0.0 in scales:
            raise UsageError("expected finite scales above zero, found others")
        pairs = iter(zip(centres, scales, strict=True))
        columns = []
        for column in self.columns:
            if column.categories is None:
                centre, scale = next(pairs)
                column = replace(column, centre=float(centre), scale=float(scale))
            columns.append(column)
        return Table(tuple(columns), self.values)

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
            if column.categories is None:
                made[:, at] = (values - column.centre) / column.scale
            else:
                for number, category in enumerate(column.categories):
                    made[:, at + number] = values == category
            at += column.width
        return torch.from_numpy(made)

    def back(self, row: Float[Tensor, " d"]) -> tuple[Cell, ...]:
        """One row of numbers in the owner's units: rounded as the table is, categories snapped."""
        cells: list[Cell] = []
        at = 0
        for column in self.columns:
            part = row[at : at + column.width].double()
            at += column.width
            if column.categories is None:
                value = round(float(part[0]) * column.scale + column.centre, column.decimals)
                cells.append(0.0 if value == 0 else value)
            else:
                cells.append(column.categories[int(part.argmax())])
        return tuple(cells)


def _cell(value: Any) -> Cell:
    return value if isinstance(value, str) else float(value)
