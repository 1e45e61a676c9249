import pytest

from exhume.observation import Initial
from exhume.report.knowledge import _start


@pytest.mark.parametrize(
    ("initial", "known"), [("zero", True), ("known", True), ("seed", True), ("distribution", False)]
)
def test_a_start_of_which_only_the_distribution_is_told_is_not_ticked_as_known(initial: Initial, known: bool) -> None:
    assert _start(initial)["known"] is known
