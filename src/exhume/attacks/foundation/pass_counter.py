"""The work of an attack, counted in passes."""

from dataclasses import dataclass


@dataclass
class PassCounter:
    """Sweeps over V in units of all the rows of the problem, so that a sweep over a part of them counts as a part.

    A method that sweeps over nothing says what a pass of its own is: a round of its search, a training, an evaluation.
    """

    all_rows: int = 1
    total: float = 0.0

    @property
    def passes(self) -> float:
        return self.total
