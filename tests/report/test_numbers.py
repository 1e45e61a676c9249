import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.report import charts, numbers, page
from exhume.report.numbers import percent, plain


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-300, max_value=1e300))
def test_a_number_in_words_is_the_number_to_three_digits(value: float) -> None:
    assert float(plain(value).replace(",", "")) == pytest.approx(value, rel=6e-3)


@given(st.floats(0, 1))
def test_only_nothing_is_0_percent_and_only_everything_is_100(share: float) -> None:
    assert (percent(share) == "0 %") == (share == 0)
    assert (percent(share) == "100 %") == (share == 1)


@pytest.mark.parametrize("module", [charts, numbers, page])
def test_the_examples_in_the_docstrings_hold(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0
    assert results.failed == 0
