"""Weights that L2 in the loss has brought to rest: an audit attacks them themselves, whatever the optimiser was."""

import math

import pytest
import torch
from torch import nn

import exhume
from exhume.auditing.module_target import target_of_module
from exhume.auditing.plan import make_plan
from exhume.report.numbers import plain
from exhume.report.recipes import STATIONARY, broken, recipes_section

STEPS, N, D = 3000, 8, 16


@pytest.fixture(scope="module")
def rested() -> tuple[nn.Sequential, torch.Tensor]:
    """By torch's Adam with its weight decay, which is L2 in the loss, and a falling step. Two columns are always 0."""
    torch.manual_seed(0)
    inputs, labels = torch.rand(N, D), torch.arange(N)
    inputs[:, :2] = 0
    model = nn.Sequential(nn.Linear(D, 96), nn.ReLU(), nn.Linear(96, N))
    made = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-3)
    falling = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 0.5 * (1 + math.cos(math.pi * step / STEPS)))
    for _ in range(STEPS):
        made.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        made.step()
        falling.step()
    return model, inputs


def test_the_weights_themselves_are_the_target(rested: tuple[nn.Sequential, torch.Tensor]) -> None:
    model, inputs = rested
    target = target_of_module(model, input_shape=(D,), stationary=True)
    (layer,) = target.observation.layers
    assert layer.source == "stationary"
    torch.testing.assert_close(layer.target[:, :D], model[0].weight)
    torch.testing.assert_close(target.observation.weights[:, :96], model[2].weight)
    assert target.observation.knowledge.initial == "zero"
    assert [offer.method for offer in make_plan(target, None, 0).offers][:2] == ["silent-units", "subspace"]
    span = target.observation.subspace
    assert span is not None
    assert span.shape[1] <= N
    outside = inputs - (inputs @ span) @ span.T
    assert float(outside.norm() / inputs.norm()) < 0.02


def test_an_audit_prints_what_keeps_the_weights_from_rest(rested: tuple[nn.Sequential, torch.Tensor]) -> None:
    model, inputs = rested
    audit = exhume.audit(model, truth=inputs, recipe=["adam", STATIONARY], budget=3.0)
    assert audit.subject.recipes is not None
    head, layer = (line for line in audit.subject.recipes["measured"] if "share" in line)
    assert "The assumption holds" in head
    state = model.state_dict()
    weights = torch.cat([state["0.weight"], state["0.bias"][:, None]], dim=1).double()
    rows = torch.cat([inputs, torch.ones(N, 1)], dim=1).double()
    basis = torch.linalg.qr(rows.T)[0]
    share = float((weights - (weights @ basis) @ basis.T).square().sum() / weights.square().sum())
    assert share < 1e-2
    assert layer.startswith(f"Of the weights of layer '0' themselves, a share of {plain(share)}")
    assert audit.subject.recipes["broken"] == []
    assert "cannot judge" not in audit.sentence
    assert not any(line["note"].startswith("The start") for line in audit.subject.attempts)


def test_at_rest_it_does_not_matter_how_the_weights_came_there() -> None:
    assert broken(["adam", "weight-decay"], {"adam", "weight-decay"}) != []
    assert broken(["adam", "weight-decay", STATIONARY], {"adam", "weight-decay"}) == []
    for told, judged in ((["adam"], "no"), (["adam", STATIONARY], "yes")):
        lines = {line["name"]: line for line in recipes_section(told, None, None, False, ())["lines"]}
        assert lines["adam"]["judged"] == judged
    assert "weights that L2 brought to rest are attacked themselves" in lines["adam"]["why"]
