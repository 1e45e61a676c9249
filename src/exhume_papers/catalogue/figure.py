"""A figure of the paper: the sweeps that make its numbers, how it is drawn, what it shows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from exhume.experiments.run import RunFolder
from exhume_papers.sweeps.sweep import Sweep

Scale = Literal["quick", "here", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
ATTACK_NAMES = {"heavy-ball": "published attack", "subspace": "exhume in the span"}

RELEASED = "released_error"
"""The column of the error as the authors' released code measures it."""
EXACT = 1e-9
"""The loss at the true data (the floor of any attack's) is at most that where features stood still."""


@dataclass(frozen=True)
class Part:
    """Some of a figure's runs: a panel, a row of pictures."""

    title: str
    sweeps: tuple[Sweep, ...]


@dataclass(frozen=True)
class PartResults:
    """The rows of a part's runs that ended well, and where their folders are."""

    part: Part
    rows: Sequence[Mapping[str, Any]]
    runs: Path

    def folder(self, row: Mapping[str, Any]) -> RunFolder:
        return RunFolder(self.runs / str(row["run"]))


class Figure(ABC):
    """`published` is what the paper's figure shows, in a sentence; `differs` says for each scale what was changed."""

    name: str
    title: str
    published: str
    differs: Mapping[Scale, str]

    @abstractmethod
    def parts(self, scale: Scale) -> Sequence[Part]: ...

    @abstractmethod
    def draw(self, results: Sequence[PartResults], folder: Path) -> list[Path]:
        """Draws what there is into a folder and returns the pictures."""

    @abstractmethod
    def findings(self, results: Sequence[PartResults]) -> list[str]:
        """What was measured, in sentences."""


def attack_name(row: Mapping[str, Any]) -> str:
    return ATTACK_NAMES.get(str(row["method"]), "exhume")


def shown(value: float) -> str:
    """A number as people read it.

    >>> shown(0.98765), shown(3.2e-7), shown(0.0)
    ('0.99', '3.2e-07', '0')
    """
    return f"{value:.2g}" if value else "0"
