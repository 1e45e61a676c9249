"""How well a head fits a record."""

import pytest
import torch

from exhume.attacks.probes.head_fit import head_fit
from exhume.errors import UsageError


def test_an_output_at_a_target_scores_by_the_log_of_its_distance() -> None:
    outputs = torch.tensor([[0.0, 1.0], [0.0, 0.99], [0.5, 0.5]])
    found = head_fit(torch.eye(2), outputs, "square")
    assert found[0] > 20
    assert found[1].exp().item() == pytest.approx(100, rel=1e-4)
    assert found[2].exp().item() == pytest.approx(2**0.5, rel=1e-6)


def test_one_output_is_held_against_minus_and_plus_one() -> None:
    found = head_fit(torch.ones(1, 1), torch.tensor([[-1.1], [0.9], [3.0]]), "square")
    assert torch.allclose(found, -torch.tensor([0.1, 0.1, 2.0], dtype=torch.float64).log(), atol=1e-6)


@pytest.mark.parametrize(("loss", "outputs"), [("logistic", 1), ("cross-entropy", 3)])
def test_a_sure_output_scores_higher_and_never_above_zero(loss: str, outputs: int) -> None:
    head = torch.eye(outputs)
    rows = torch.zeros(2, outputs)
    rows[1, 0] = 4.0
    found = head_fit(head, rows, loss)
    assert found[0] < found[1] < 0


def test_a_loss_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a loss out of"):
        head_fit(torch.eye(2), torch.eye(2), "absolute")
    with pytest.raises(UsageError, match="one output"):
        head_fit(torch.eye(2), torch.eye(2), "logistic")
