"""Solves without which nothing can go on: one that fails is one line, not a fault; and least squares to the bit."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from exhume.errors import ExhumeError

SOLVE_ERRORS = (torch.linalg.LinAlgError, np.linalg.LinAlgError)
"""A matrix that is singular, not positive definite, not finite, or whose eigenvalues do not converge."""


@contextmanager
def solving(what: str) -> Iterator[None]:
    """Around (or as a decorator of) what solves linear systems. `what` is to be solved, for the message."""
    try:
        yield
    except SOLVE_ERRORS as problem:
        raise ExhumeError(
            f"expected {what} to have a solution in floating point, found: {in_one_line(problem)}; look at the scale "
            "of the numbers and for copies among them"
        ) from problem


def least_squares(matrix: Tensor, targets: Tensor) -> Tensor:
    """The smallest x that minimises ||matrix x − targets||. To the bit the same each time: LAPACK's gelsy, which torch
    would take on a CPU, depends on where in memory the numbers lie."""
    driver = "gelsd" if matrix.device.type == "cpu" else None
    return torch.linalg.lstsq(matrix, targets, driver=driver).solution


def in_one_line(problem: BaseException) -> str:
    """
    >>> in_one_line(ValueError("two\\n  lines."))
    'two lines'
    """
    return " ".join(str(problem).split()).rstrip(".")
