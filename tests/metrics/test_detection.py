"""AUC and detection rates."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.metrics.detection import detection_rate, roc_auc, rows_among

scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=10)


@settings(max_examples=40)
@given(scores, scores)
def test_auc_counts_the_pairs_in_the_right_order(members: list[float], others: list[float]) -> None:
    pairs = [(a > b) + 0.5 * (a == b) for a in members for b in others]
    assert roc_auc(torch.tensor(members), torch.tensor(others)) == pytest.approx(sum(pairs) / len(pairs))


@settings(max_examples=40)
@given(scores, scores)
def test_no_more_than_the_allowed_share_of_others_is_above_the_threshold(
    members: list[float], others: list[float]
) -> None:
    rate = detection_rate(torch.tensor(members), torch.tensor(others), false_alarms=0.3)
    thresholds = [cut for cut in others if sum(other > cut for other in others) <= 0.3 * len(others)]
    assert rate == pytest.approx(max(sum(member > cut for member in members) for cut in thresholds) / len(members))


def test_without_one_of_the_two_there_is_nothing_to_tell_apart() -> None:
    with pytest.raises(UsageError, match="found 0 and 2"):
        roc_auc(torch.zeros(0), torch.zeros(2))


def test_rows_are_found_among_others_up_to_rounding_of_pixels() -> None:
    known = torch.randn(4, 30, generator=torch.Generator().manual_seed(0))
    rows = torch.cat([known[2:3] + 0.01, known[:1] + 0.5, torch.zeros(1, 30)])
    assert rows_among(rows, known).tolist() == [True, False, False]
    with pytest.raises(UsageError, match="30 numbers"):
        rows_among(torch.zeros(2, 3), known)
