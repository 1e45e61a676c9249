from typing import Any

import pytest
import torch

from exhume.auditing.cost import cost_of
from exhume.auditing.module_target import target_of_module
from exhume.auditing.records import Control, records_of_rows
from exhume.auditing.target import AuditTarget, target_of_rows
from exhume.auditing.what_if import check_what_if, defend, published
from exhume.defences.private import PrivateRecipe, epsilon
from exhume.errors import UsageError
from exhume.features.rows import HeldRows


@pytest.fixture
def target(fitted: Any) -> AuditTarget:
    return target_of_rows(HeldRows(fitted.rows), fitted.weights, activation="relu")


def test_pruning_costs_more_than_rounding_and_the_model_itself_costs_nothing(fitted: Any, target: AuditTarget) -> None:
    truth = records_of_rows(fitted.truth, fitted.labels)
    control = Control(fitted.control, fitted.labels)
    costs = {name: cost_of(defend(name, target, truth, 0), target, truth, control) for name in ("int8", "prune50")}
    own = cost_of(published(target), target, truth, control)
    assert (own.output_change, own.agreement, own.accuracy) == (0.0, 1.0, 1.0)
    assert own.control_accuracy is not None
    assert 0 < costs["int8"].output_change < costs["prune50"].output_change < 1


def test_pruned_features_are_gone_for_the_attacker_and_zero_for_the_outputs(fitted: Any, target: AuditTarget) -> None:
    pruned = defend("prune50", target, None, 0)
    assert pruned.observation.features.p == 150
    assert int((pruned.head == 0).sum()) == 150
    assert pruned.note == "150 of 300 features removed"
    rows = fitted.control
    by_hand = (rows @ fitted.rows.T).clamp_min(0) @ pruned.head[0]
    assert torch.allclose(target.outputs(rows, pruned.head)[:, 0].float(), by_hand, atol=1e-5)


def test_noise_alone_has_a_size_and_without_records_random_rows_measure_the_cost(target: AuditTarget) -> None:
    noisy = defend("noise", target, None, 3)
    assert noisy.name == "noise0.1"
    cost = cost_of(noisy, target, None, None)
    assert 0 < cost.output_change < 1
    assert (cost.accuracy, cost.control_accuracy) == (None, None)


def test_a_defence_acts_on_the_head_and_not_on_its_change(fitted: Any) -> None:
    start = torch.randn(300, generator=torch.Generator().manual_seed(2))
    target = target_of_rows(HeldRows(fitted.rows), fitted.weights + start, activation="relu", initial=start)
    rounded = defend("bf16", target, None, 0)
    assert torch.equal(rounded.head[0], (fitted.weights + start).bfloat16().float())
    assert torch.allclose(rounded.observation.weights[0], rounded.head[0] - start)


def test_dp_trains_the_head_again_to_the_epsilon_that_was_asked_for(fitted: Any, target: AuditTarget) -> None:
    truth = records_of_rows(fitted.truth, fitted.labels)
    private = defend("dp3", target, truth, 0)
    assert "epsilon 3 at delta 1e-05" in private.note
    assert private.observation.weights.shape == (1, 300)
    assert not torch.allclose(private.head, target.head)
    assert epsilon(PrivateRecipe(clip=1, noise=5, steps=9), 1.0) > epsilon(PrivateRecipe(clip=1, noise=9, steps=9), 1.0)
    with pytest.raises(UsageError, match="expected records with labels for dp"):
        defend("dp", target, None, 0)


def test_a_network_is_defended_and_costed_in_its_own_features() -> None:
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.LeakyReLU(), nn.Linear(9, 3))
    target = target_of_module(model, input_shape=(6,), initial="zero")
    truth = records_of_rows(torch.randn(6, 6), torch.tensor([0, 1, 2, 0, 1, 2]))
    cost = cost_of(published(target), target, truth, None)
    right = model(truth.inputs).argmax(dim=1) == torch.tensor([0, 1, 2, 0, 1, 2])
    assert cost.accuracy == pytest.approx(float(right.float().mean()))
    assert defend("prune50", target, truth, 0).observation.features.p == 5


def test_names_that_mean_nothing_are_refused_beforehand() -> None:
    check_what_if(("int8", "prune50", "noise", "dp", "dp3"), has_labels=True)
    with pytest.raises(UsageError, match="expected a defence such as"):
        check_what_if(("dpx",), has_labels=True)
    with pytest.raises(UsageError, match="records with labels for dp3"):
        check_what_if(("dp3",), has_labels=False)
