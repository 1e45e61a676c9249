"""One thing in an artefact that is training data, or that leads to it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np


class Holds(Enum):
    """What a finding is, from the worst down."""

    RECORDS = "records"
    """Rows, pictures or texts that were trained on."""
    VALUES = "values"
    """Single values of them: categories, extremes, words."""
    LEAD = "lead"
    """Something that an attack can start from."""


class Certainty(Enum):
    CERTAIN = "certain"
    """The format itself says so."""
    LIKELY = "likely"
    """Names and shapes say so; something else could look the same."""
    POSSIBLE = "possible"
    """Often so; somebody has to look."""


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Records that lie in a file: how many, of how many numbers, which rows of the training set, if that is told.

    `labels` reads one for each, `names` are those of the columns, where the file has them.
    """

    count: int
    columns: int
    read: Callable[[], np.ndarray]
    numbers: tuple[int, ...] | None = None
    labels: Callable[[], list[Any]] | None = None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Finding:
    """`rule` is the name of the kind of finding. `where` is a file, and the place in it after a colon."""

    rule: str
    holds: Holds
    certainty: Certainty
    what: str
    where: str
    gives_away: str
    remedy: str
    attack: str
    rows: StoredRows | None = None

    @property
    def severity(self) -> tuple[int, int]:
        """Smaller is worse."""
        return (list(Holds).index(self.holds), list(Certainty).index(self.certainty))

    def to_json(self) -> dict[str, Any]:
        listed: dict[str, Any] = {
            "what": self.what,
            "where": self.where,
            "certainty": self.certainty.value,
            "gives_away": self.gives_away,
            "remedy": self.remedy,
            "attack": self.attack,
            "holds": self.holds.value,
            "rule": self.rule,
        }
        if self.rows is not None:
            listed |= {"rows": self.rows.count, "columns": self.rows.columns}
            if self.rows.numbers is not None:
                listed["row_numbers"] = list(self.rows.numbers)
            if self.rows.names is not None:
                listed["column_names"] = list(self.rows.names)
        return listed


READ_IT = "none is needed: they are in the file, and --rows FILE.csv writes them out"
