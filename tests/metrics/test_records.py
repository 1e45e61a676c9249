"""Records that are alike: candidates that are no more than rows of their kind are close to some of them."""

from collections.abc import Callable

import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from torch import Tensor

import exhume
from exhume.metrics.records import chance_of, compare
from exhume.verdicts import LUCK


def wine() -> Tensor:
    """As it is, one column of hundreds: its rows are alike."""
    return torch.from_numpy(load_wine().data)


def iris() -> Tensor:
    """Standardised, from numbers with one decimal: some rows are the same."""
    rows = torch.from_numpy(load_iris().data)
    return (rows - rows.mean(0)) / rows.std(0)


def narrow() -> Tensor:
    return 5 + 0.3 * torch.randn(120, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("table", "directions"), [(wine, False), (wine, True), (narrow, False), (narrow, True), (iris, False)]
)
def test_other_rows_of_the_kind_count_as_luck_and_the_rows_themselves_do_not(
    table: Callable[[], Tensor], directions: bool
) -> None:
    stream, rows, by_luck, close = torch.Generator().manual_seed(1), table(), 0, 0
    for _ in range(40):
        mixed = rows[torch.randperm(len(rows), generator=stream)]
        records, others = mixed[:60], mixed[60:80]
        came = compare(records, others, directions_only=directions)
        if came.recovered.any():
            close += 1
            by_luck += chance_of(came, records, len(others), directions_only=directions) <= LUCK
        themselves = compare(records, records + 1e-6, directions_only=directions)
        assert themselves.recovered.all()
        assert chance_of(themselves, records, 60, directions_only=directions) <= LUCK
    assert close >= 10
    assert by_luck <= 4  # a test at 5 % of 40 draws: more than 4 in one of 20 repetitions


def test_one_exact_record_counts_where_numbers_are_fine_and_not_where_rows_repeat() -> None:
    for rows, counts in ((narrow()[:12], True), (iris()[:50], False)):
        came = compare(rows, rows[:1])
        assert int(came.recovered.sum()) == 1
        assert (chance_of(came, rows, 12) <= LUCK) == counts


def test_records_that_are_apart_are_counted_whatever_their_number() -> None:
    rows = torch.from_numpy(load_breast_cancer().data[:40])
    rows = (rows - rows.mean(0)) / rows.std(0)
    assert chance_of(compare(rows, 1.09 * rows[:1]), rows, 200) == 0


def test_records_in_a_plane_do_not_make_random_weights_leak() -> None:
    """300 directions in two dimensions lie everywhere; nothing was trained on any of them."""
    stream = torch.Generator().manual_seed(0)
    weights, rows, records = (torch.randn(*shape, generator=stream) for shape in ((60,), (60, 2), (300, 2)))
    audit = exhume.audit_features(rows, weights, "relu", truth=records, budget=5.0)
    assert audit.summary["recovered"] > 0
    assert audit.verdict.value == "inconclusive"
    assert "so alike that other rows of their kind would come as close" in audit.sentence
