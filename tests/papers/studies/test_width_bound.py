import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume_papers.studies.width_bound import WidthBound

counts = st.integers(1, 40)
sizes = st.floats(0.2, 4)


@given(counts, counts, st.floats(1e-3, 0.1), sizes, sizes, sizes, sizes, st.floats(0.01, 0.5))
def test_the_width_is_that_of_the_formula(
    n: int, d: int, eta: float, a: float, b: float, lipschitz: float, r: float, delta: float
) -> None:
    eta = min(eta, a**2 * b**2)
    naive = 24 * a**2 * b**2 / eta
    naive *= (
        n * d * math.log(1 + 96 * a**2 * b * lipschitz * r / eta)
        + 2 * n * math.log(1 + 96 * a**2 * b**2 / eta)
        + math.log(1 / delta)
    )
    assert WidthBound(n, d, eta, a, b, lipschitz, r, delta).width == pytest.approx(naive, rel=1e-9, abs=1)


@given(counts, counts)
def test_it_follows_the_dimension_of_the_subspace(n: int, r: int) -> None:
    width = WidthBound(n, r, 0.1).width
    assert WidthBound(n, r + 1, 0.1).width > width
    assert WidthBound(n + 1, r, 0.1).width > width
    assert WidthBound(n, r, 0.2).width < width
    assert WidthBound(n, r, 0.1, failure_rate=0.5).width < width


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"samples": 0}, "at least 1 for samples, found 0"),
        ({"dimension": 0}, "at least 1 for dimension"),
        ({"separation": 0.0}, "positive number for separation"),
        ({"row_norm": math.inf}, "positive number for row norm"),
        ({"failure_rate": 1.0}, "between 0 and 1"),
        ({"separation": 5.0}, "at most 4 A"),
    ],
)
def test_constants_out_of_range_are_refused(fields: dict[str, float], found: str) -> None:
    with pytest.raises(UsageError, match=found):
        WidthBound(**{"samples": 1, "dimension": 2, "separation": 0.1, **fields})  # type: ignore[arg-type]


def test_every_assumption_is_said_and_that_it_is_derived_here() -> None:
    said = " ".join(WidthBound(1, 2, 0.3).explain())
    assert "derived here" in said
    assert said.count("It assumes") == 7
