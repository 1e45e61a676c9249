import pytest

from exhume.errors import UsageError
from exhume_papers.data.class_choice import find_classes

NAMES = ["cat", "dog", "frog"]


def test_classes_are_found_by_name_and_by_number_in_the_order_asked_for() -> None:
    assert find_classes(["frog", "0"], NAMES, "Zoo") == [2, 0]


def test_a_class_whose_name_is_a_number_wins_over_the_position() -> None:
    assert find_classes(["1"], ["1", "0"], "Zoo") == [0]


@pytest.mark.parametrize("choice", ["cow", "3", "-1", "", "²", "Cat"])
def test_an_unknown_class_lists_the_known(choice: str) -> None:
    with pytest.raises(
        UsageError, match=r"expected a class of Zoo \(cat, dog, frog or a number from 0 to 2\)"
    ) as caught:
        find_classes([choice], NAMES, "Zoo")
    assert f"found {choice!r}" in str(caught.value)


@pytest.mark.parametrize("asked", [["cat", "cat"], ["cat", "0"]])
def test_a_class_cannot_be_asked_for_twice(asked: list[str]) -> None:
    with pytest.raises(UsageError, match="expected each class once, found 'cat' twice"):
        find_classes(asked, NAMES, "Zoo")
