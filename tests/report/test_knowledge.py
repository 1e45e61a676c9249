from dataclasses import replace

import pytest
import torch

from exhume.activations import activation
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observation import Initial, Knowledge, Observation
from exhume.report.knowledge import _start, not_tested


@pytest.mark.parametrize(
    ("initial", "known"), [("zero", True), ("known", True), ("seed", True), ("distribution", False)]
)
def test_a_start_of_which_only_the_distribution_is_told_is_not_ticked_as_known(initial: Initial, known: bool) -> None:
    assert _start(initial)["known"] is known


def test_a_first_layer_whose_change_was_used_is_not_listed_as_untested() -> None:
    rows = HeldRows(torch.randn(6, 3))
    head = Observation(RidgeFeatures(rows, activation("relu")), torch.ones(1, 6), Knowledge())
    both = replace(head, initial_rows=HeldRows(torch.randn(6, 3)))
    assert "Layers other than the head, and" in not_tested(None, head, True, None, [])[1]
    assert "Layers other than the head and the first one" in not_tested(None, both, True, None, [])[1]
