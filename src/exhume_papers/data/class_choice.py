"""Which classes a user means, by name or by number."""

from collections.abc import Sequence

from exhume.errors import UsageError

SHOWN_NAMES = 10


def find_classes(asked: Sequence[str], names: Sequence[str], dataset: str) -> list[int]:
    """Positions in `names` of the classes asked for, each at most once.

    >>> find_classes(["truck", "0"], ["frog", "truck"], "a data set")
    [1, 0]
    """
    positions: list[int] = []
    for choice in asked:
        if choice in names:
            position = names.index(choice)
        elif choice.isascii() and choice.isdecimal() and int(choice) < len(names):
            position = int(choice)
        else:
            shown = ", ".join(names[:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")
            raise UsageError(
                f"expected a class of {dataset} ({shown} or a number from 0 to {len(names) - 1}), found {choice!r}"
            )
        if position in positions:
            raise UsageError(f"expected each class once, found {names[position]!r} twice in {','.join(asked)!r}")
        positions.append(position)
    return positions
