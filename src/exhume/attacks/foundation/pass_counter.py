"""A count of the work of an attack that makes no passes over features."""

from dataclasses import dataclass


@dataclass
class PassCounter:
    """The loop reports passes. Each method says what one is: a round of its search, a training, an evaluation."""

    passes: float = 0.0
