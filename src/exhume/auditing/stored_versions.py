"""Two released versions of a model that stores records: a kernel machine, kernel ridge, a Gaussian process, neighbours.

Such a model predicts by its training records and keeps them. A record that one version has and the other has not was
deleted or added between the two, as it stands: no attack is needed (Bertran et al. 2024, for kernel models).

A support vector may also be gone because the boundary moved away from it. scikit-learn keeps the number that each had
in the training set: where a record was deleted, the numbers of all later ones fall by one. A deleted record that was no
support vector changes nothing but these numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.errors import ExhumeError
from exhume.formats.contents import StoredArray, StoredObject
from exhume.formats.reading import kind_of, read_contents
from exhume.scanning.finding import Finding, StoredRows
from exhume.scanning.scan import scan

KINDS = ("skops", "onnx")
RULES = ("stored-neighbours", "kernel-basis", "support-vectors")
BOUNDARY = "support-vectors"
EQUAL = 1e-6
"""Of the largest number of a column: ONNX keeps single precision, and a scaler is undone in between."""
WEIGHTS = ("dual_coef_", "alpha_")
DELETED = "deleted: the numbers of all later records fall there"
MOVED = "deleted, or the boundary moved away from it"
ADDED = "added: the numbers of all later records rise there"
MOVED_TO = "added, or the boundary moved to it"


@dataclass(frozen=True, eq=False, repr=False)
class ChangedRow:
    """A record of one version that the other does not store. `place`: its row there, from 0. `number`: its row in the
    training set of that version, if the file says it."""

    place: int
    number: int | None
    values: np.ndarray
    how: str


@dataclass(frozen=True, eq=False)
class StoredChange:
    """`where` and `what` of the newer version, and what it stores in common with the older one."""

    what: str
    where: str
    gone: tuple[ChangedRow, ...]
    new: tuple[ChangedRow, ...]
    shared: int
    reweighted: int | None
    """Shared records whose coefficient differs by more than rounding; None where the model keeps none."""


def stored_changes(new: Path, old: Path) -> tuple[StoredChange, ...]:
    """Nothing where the newer version stores no records."""
    if kind_of(new) not in KINDS:
        return ()
    after = _stored(new)
    if not after:
        return ()
    if kind_of(old) not in KINDS:
        read_contents(old)  # one line where it cannot be read
    before = _stored(old)
    if [finding.rule for finding in after] != [finding.rule for finding in before]:
        shown = ", ".join(finding.rule for finding in before) or "none"
        raise ExhumeError(
            f"expected a model in {old} that stores records as {new} does ({after[0].rule}), found {shown}"
        )
    coefficients = [_coefficients(path) for path in (new, old)]
    return tuple(_change(*pair, coefficients) for pair in zip(after, before, strict=True))


def _stored(path: Path) -> list[Finding]:
    return [found for found in scan(path).findings if found.rule in RULES and found.rows is not None]


def _change(after: Finding, before: Finding, coefficients: Sequence[np.ndarray | None]) -> StoredChange:
    new, old = after.rows, before.rows
    assert new is not None
    assert old is not None
    if new.columns != old.columns:
        raise ExhumeError(f"expected records of {new.columns:,} numbers in the older version, found {old.columns:,}")
    now, then = (np.asarray(part.read(), dtype=np.float64) for part in (new, old))
    pairs = equal_rows(then, now)
    back = [(b, a) for a, b in pairs]
    at_boundary = after.rule == BOUNDARY
    return StoredChange(
        what=after.what,
        where=after.where,
        gone=_only_in(old, then, new, pairs, (DELETED, MOVED) if at_boundary else ("deleted", "deleted")),
        new=_only_in(new, now, old, back, (ADDED, MOVED_TO) if at_boundary else ("added", "added")),
        shared=len(pairs),
        reweighted=_reweighted(pairs, coefficients, (len(then), len(now))),
    )


def equal_rows(then: np.ndarray, now: np.ndarray) -> list[tuple[int, int]]:
    """Places of equal records, one to one: of three copies in one version and two in the other, one is left over.

    >>> equal_rows(np.array([[1.0], [2.0], [2.0]]), np.array([[2.0], [3.0]]))
    [(1, 0)]
    """
    from scipy.spatial import KDTree

    if not len(then) or not len(now) or not (np.isfinite(then).all() and np.isfinite(now).all()):
        return []
    largest = np.abs(np.concatenate([then, now])).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)
    free, pairs = [True] * len(now), []
    for place, some in enumerate(KDTree(now / unit).query_ball_point(then / unit, EQUAL, p=np.inf)):
        chosen = next((other for other in sorted(some) if free[other]), None)
        if chosen is not None:
            free[chosen] = False
            pairs.append((place, chosen))
    return pairs


def _only_in(
    rows: StoredRows, values: np.ndarray, others: StoredRows, pairs: list[tuple[int, int]], words: tuple[str, str]
) -> tuple[ChangedRow, ...]:
    """Records that the other version does not store. The first word is for those whose numbers say it as well."""
    taken = {own for own, _ in pairs}
    found = []
    for place in (at for at in range(len(values)) if at not in taken):
        number = None if rows.numbers is None else rows.numbers[place]
        sure = number is not None and others.numbers is not None and _fall(number, rows, others, pairs)
        found.append(ChangedRow(place, number, values[place], words[0 if sure else 1]))
    return tuple(found)


def _fall(number: int, rows: StoredRows, others: StoredRows, pairs: list[tuple[int, int]]) -> bool:
    """Whether the numbers of shared records fall behind this one, against those before it."""
    assert rows.numbers is not None
    assert others.numbers is not None
    own, theirs = rows.numbers, others.numbers
    falls = sorted((own[a], own[a] - theirs[b]) for a, b in pairs)
    before = [fall for at, fall in falls if at < number]
    behind = [fall for at, fall in falls if at > number]
    return bool(behind) and behind[0] > (before[-1] if before else 0)


def _coefficients(path: Path) -> np.ndarray | None:
    """One row per stored record; None where the file has no coefficients of a kernel, or several models."""
    found = [_of_model(model) for model in read_contents(path).objects]
    kept = [values for values in found if values is not None]
    return kept[0] if len(kept) == 1 else None


def _of_model(model: StoredObject) -> np.ndarray | None:
    arrays = [model.members.get(name) for name in WEIGHTS]
    found = next((array for array in arrays if isinstance(array, StoredArray) and array.dtype != "sparse"), None)
    if found is None:
        return None
    values = np.asarray(found.read(), dtype=np.float64)
    return values.T if "support_vectors_" in model.members else values.reshape(len(values), -1)


def _reweighted(
    pairs: list[tuple[int, int]], coefficients: Sequence[np.ndarray | None], counts: tuple[int, int]
) -> int | None:
    now, then = coefficients
    if now is None or then is None or (len(then), len(now)) != counts or now.shape[1:] != then.shape[1:] or not pairs:
        return None
    a, b = map(list, zip(*pairs, strict=True))
    apart = np.abs(then[a] - now[b]).max(axis=1)
    return int((apart > EQUAL * np.abs(then).max()).sum())
