import copy
from typing import Any

import pytest
import torch
from torch import nn

from exhume.attacks.registry import method_names
from exhume.attacks.running.settings import AttackSettings
from exhume.auditing.attempts import best_of, carry_out
from exhume.auditing.module_target import target_of_module
from exhume.auditing.plan import make_plan
from exhume.auditing.target import target_of_rows
from exhume.features.rows import HeldRows
from exhume.reconstruction import Outcome


def test_every_method_is_either_offered_or_passed_over_with_a_reason(fitted: Any) -> None:
    ridge = target_of_rows(HeldRows(fitted.rows), fitted.weights, activation="relu")
    linear = target_of_rows(HeldRows(fitted.rows), fitted.weights, activation="linear")
    model = nn.Sequential(nn.Linear(4, 9), nn.Mish(), nn.Linear(9, 1))
    network = target_of_module(model, input_shape=(4,), initial="zero")
    for target in (ridge, linear, network):
        for samples in (None, 3):
            plan = make_plan(target, samples, seed=7)
            offered = {offer.method for offer in plan.offers}
            passed = {line.method for line in plan.passed_over}
            assert offered | passed == set(method_names())
            assert not offered & passed
            assert all(line.why for line in plan.passed_over)
    assert make_plan(linear, 3, 0).offers == ()
    assert {offer.method for offer in make_plan(network, 3, 0).offers} == {"module-newton"}


def test_the_number_of_samples_is_told_last_and_only_where_it_is_known(fitted: Any) -> None:
    target = target_of_rows(HeldRows(fitted.rows), fitted.weights, activation="relu")
    assert [offer.samples for offer in make_plan(target, 3, 0).offers] == [None, None, 3]
    unknown = make_plan(target, None, 0)
    assert [offer.samples for offer in unknown.offers] == [None, None]
    assert "has to be told n" in {line.method: line.why for line in unknown.passed_over}["heavy-ball"]


@pytest.mark.parametrize(
    ("n", "recipe", "first"),
    [
        (20, (), ["silent-units", "firing-patterns"]),
        (5, (), ["silent-units", "subspace"]),
        (20, ("adam",), ["silent-units", "subspace"]),
    ],
)
def test_more_samples_than_dimensions_get_the_attack_that_is_made_for_them(
    n: int, recipe: tuple[str, ...], first: list[str]
) -> None:
    """Behind three others it gets what they leave of the budget, and none of them has a span to search in."""
    torch.manual_seed(0)
    inputs, labels = torch.randn(n, 8), torch.arange(n) % 2
    model = nn.Sequential(nn.Linear(8, 200), nn.ReLU(), nn.Linear(200, 2))
    before, optimiser = copy.deepcopy(model.state_dict()), torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(50):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    plan = make_plan(target_of_module(model, input_shape=(8,), initial=before), None, 0, recipe)
    assert [offer.method for offer in plan.offers][:2] == first


def test_the_first_attack_that_decides_ends_the_plan(fitted: Any) -> None:
    target = target_of_rows(HeldRows(fitted.rows), fitted.weights, activation="relu")
    attempts = carry_out(target.observation, make_plan(target, 3, 0).offers, 60, AttackSettings())
    assert [attempt.offer.method for attempt in attempts] == ["split-newton"]
    best = best_of(attempts)
    assert best is not None
    assert best.attacked is not None
    assert best.attacked.reconstruction.outcome is Outcome.RECOVERED
    assert not best.attacked.stopped


def test_what_the_time_did_not_reach_is_listed_as_not_run(fitted: Any) -> None:
    noise = torch.randn(300, generator=torch.Generator().manual_seed(0))
    target = target_of_rows(HeldRows(fitted.rows), noise, activation="relu")
    attempts = carry_out(target.observation, make_plan(target, None, 0).offers, 0.06, AttackSettings())
    assert len(attempts) == 2
    assert attempts[0].attacked is not None
    assert attempts[0].attacked.stopped
    assert attempts[1].failure == "the time was used up before it"
    assert best_of(attempts) is attempts[0]
    assert best_of(attempts[1:]) is None


def test_what_an_attack_is_said_to_lack_was_not_there() -> None:
    """The first layer of this network has moved from a known start, which is not why `subspace` is not made."""
    model = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 2))
    before = {name: value + 0.1 for name, value in model.state_dict().items()}
    plan = make_plan(target_of_module(model, input_shape=(4,), initial=before), None, 0)
    passed = {line.method: line.why for line in plan.passed_over}
    assert "features phi(Vx + b)" in passed["subspace"]
