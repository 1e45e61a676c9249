"""What to do next, by cost, and what silent units gave away: true of the audit that the page is about."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.report.next_steps import ACCURACY, FREE, MINUTES, RELEASE, SECONDS, TRAINING, tried_defences
from exhume.report.page import render
from exhume.verdicts import Verdict

COSTS = (FREE, SECONDS, MINUTES, TRAINING, ACCURACY, RELEASE)


def trained() -> tuple[nn.Module, dict[str, Tensor], Tensor]:
    """Eight samples of twelve numbers in two hundred units."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x, y = torch.randn(8, 12), torch.arange(8) % 2
        model = nn.Sequential(nn.Linear(12, 200), nn.ReLU(), nn.Linear(200, 2))
        before = copy.deepcopy(model.state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(80):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
    return model, before, x


@pytest.fixture(scope="module")
def leaking() -> dict[str, Any]:
    model, before, x = trained()
    return exhume.audit(model, initial=before, truth=x, what_if=("fp16",), budget="60s").content()


@pytest.fixture(scope="module")
def unsettled() -> dict[str, Any]:
    model, _, _ = trained()
    return exhume.audit(model, budget="3s").content()


@pytest.mark.parametrize("content", ["leaking", "unsettled"])
def test_steps_go_from_cheap_to_dear(content: str, request: pytest.FixtureRequest) -> None:
    costs = [COSTS.index(step["cost"]) for step in request.getfixturevalue(content)["next"]]
    assert costs == sorted(costs)
    assert len(costs) >= 5
    assert costs[-1] == COSTS.index(RELEASE)


def test_steps_name_what_this_attack_used_and_what_was_tried(leaking: dict[str, Any]) -> None:
    steps = {step["what"]: step["why"] for step in leaking["next"]}
    assert next(iter(steps)) == "Hold these weights back."
    assert any("before training" in what and "layer '0'" in why for what, why in steps.items())
    assert "Do not rely on fp16." in steps
    assert "Train again with layer '0' frozen at its start." in steps
    assert not any("--what-if" in what for what in steps)


def test_p_is_not_called_the_parameters_of_a_network(leaking: dict[str, Any]) -> None:
    """Two outputs that move oppositely are 200 equations, and the network has 3,002 numbers."""
    assert (leaking["gauge"]["parameters"], leaking["gauge"]["p"]) == (12 * 200 + 200 + 400 + 2, 200)
    assert "3,002 parameters; the last layer gives p = 200 independent equations, d = 12" in leaking["model_card"]
    assert "p, parameters" not in (page := render(leaking))
    assert "400 of them in the last layer" in page
    assert "p = 200 independent equations" in leaking["gauge"]["sentences"][0]


def test_only_what_attacks_were_refuted_on_is_proposed() -> None:
    """An attack that fails on defended weights is no reason to trust the defence."""
    verdicts = {
        "as published": Verdict.RECOVERED,
        "fp16": Verdict.PARTLY_RECOVERED,
        "int8": Verdict.INCONCLUSIVE,
        "noise1": Verdict.NOT_RECOVERED,
    }
    what_if: list[dict[str, Any]] = [{"name": name, "verdict": verdict.value} for name, verdict in verdicts.items()]
    steps = tried_defences([*what_if, {"name": "dp8", "verdict": None}])
    assert [step.what for step in steps] == [
        "Do not rely on fp16.",
        "Do not rely on int8: not settled.",
        "Consider noise1.",
    ]
    assert "inconclusive" in steps[1].why


def test_an_audit_that_shows_nothing_is_not_taken_for_a_no(unsettled: dict[str, Any]) -> None:
    assert unsettled["verdict"]["answer"] == "Nobody knows yet."
    steps = [step["what"] for step in unsettled["next"]]
    assert steps[0] == "Do not take this page for a no."
    assert "Audit again with what this audit lacked." in steps
    assert unsettled["silent"] is None


def test_silent_units_say_which_layer_what_rank_and_which_samples(leaking: dict[str, Any]) -> None:
    (line, *_) = leaking["silent"]["attempts"]
    assert (line["layer"], line["rank"], line["found"], line["confirmed"]) == ("0", 8, 8, 8)
    assert "since the known start" in line["state"]
    assert leaking["silent"]["samples"] == {"recovered": "0 to 7", "others": None}


def test_a_state_beside_the_weights_is_what_to_leave_out() -> None:
    model, _, x = trained()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), torch.arange(8) % 2).backward()
        optimiser.step()
    content = exhume.audit(model, optimiser=optimiser.state_dict(), truth=x, budget="5s").content()
    assert content["verdict"]["answer"].startswith("Yes")
    (why,) = (step["why"] for step in content["next"] if "optimiser's state" in step["what"])
    assert "momentum buffer" in why
    assert not any("before training" in step["what"] for step in content["next"])
