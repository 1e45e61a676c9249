import pytest

from exhume_papers.catalogue.checks import CHECKS
from exhume_papers.catalogue.theory import no_duplicates, slope, smallest_eigenvalue, uniform_concentration


def test_the_smallest_eigenvalue_grows_like_p() -> None:
    check = smallest_eigenvalue("quick")
    points = [(row["p"], row["smallest_eigenvalue"]) for row in check.rows]
    assert 0.9 < slope(points[2:]) < 1.3
    assert check.panel is not None
    assert "p^1." in check.finding


@pytest.mark.slow
def test_deviations_are_of_the_order_of_the_law() -> None:
    check = uniform_concentration("quick")
    constants = [row["over_law"] for row in check.rows]
    assert max(constants) < 2 * min(constants)
    assert -0.7 < slope([(row["p"], row["deviation"]) for row in check.rows]) < -0.3


@pytest.mark.slow
def test_duplicates_span_the_second_sample_only_where_anything_does() -> None:
    rows = no_duplicates("quick").rows
    assert rows[0]["duplicates"] < 0.01
    assert rows[-1]["duplicates"] > 0.05
    assert rows[-1]["free"] < 0.5 * rows[-1]["duplicates"]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_every_check_says_what_it_found(check: object) -> None:
    assert callable(check)
    done = check("quick")
    assert done.rows
    assert len({tuple(row) for row in done.rows}) == 1, "one table has one set of columns"
    assert done.claim
    assert done.finding
