"""Defences reach the layers before the head: what an attack on such a layer sees is what would be published."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import exhume
from exhume.auditing.cost import cost_of
from exhume.auditing.module_target import target_of_module
from exhume.auditing.records import records_of_rows
from exhume.auditing.target import AuditTarget
from exhume.auditing.what_if import defend
from exhume.observing.beside import Beside
from silent_victims import Trained, train


def target_of(victim: Trained, beside: Beside | None = None) -> AuditTarget:
    return target_of_module(victim.model, input_shape=(40,), initial=victim.before, beside=beside)


def lines_of(victim: Trained, *names: str, **given: Any) -> dict[str, dict[str, Any]]:
    done = exhume.audit(
        victim.model, initial=victim.before, truth=victim.inputs, budget_seconds=120, what_if=names, **given
    )
    return {line["name"]: line for line in done.summary["what_if"]}


def test_noise_on_the_weights_takes_the_samples_of_the_first_layer_away() -> None:
    lines = lines_of(train(seed=40), "fp16", "noise0.1", "prune50")
    assert lines["as published"]["recovered"] == 12
    assert lines["fp16"]["recovered"] == 12
    assert lines["noise0.1"]["recovered"] == 0
    assert lines["prune50"]["recovered"] == 12  # the units that stay are exact
    assert "layer '0' without 200 of 400 units, which outputs here do not show" in lines["prune50"]["note"]


def test_an_optimisers_state_is_published_as_it_is_and_still_tells() -> None:
    victim = train(seed=41)
    lines = lines_of(victim, "noise0.01", optimiser=victim.optimiser.state_dict())
    assert lines["noise0.01"]["recovered"] == 12
    assert "the optimiser's state as it is" in lines["noise0.01"]["note"]


@pytest.mark.parametrize("name", ["bf16", "int8", "int8-row", "noise0.2"])
def test_the_published_end_is_defended_and_the_start_is_not(name: str) -> None:
    victim = train(seed=42, steps=5)
    target = target_of(victim)
    states = defend(name, target, None, 3).observation.layers[0]
    end, before = states.ends[-1], target.observation.layers[0].ends[-1]
    assert torch.equal(states.ends[0], victim.start)
    assert torch.equal(states.target, end.double() - victim.start.double())
    assert not torch.equal(end[:, :40], before[:, :40])
    if name == "bf16":
        assert torch.equal(end, before.bfloat16().float())
    elif name == "noise0.2":
        size = float((end - before)[:, :40].square().mean().sqrt() / before[:, :40].square().mean().sqrt())
        assert size == pytest.approx(0.2, rel=0.05)
    else:
        assert torch.equal(end[:, 40], before[:, 40])  # biases stay


def test_the_cost_is_that_of_all_layers() -> None:
    victim = train(seed=43, steps=5)
    target, truth = target_of(victim), records_of_rows(victim.inputs, None)
    defended = defend("bf16", target, truth, 0)
    with torch.no_grad():
        right = victim.model(victim.inputs).double()
        moved = victim.model.bfloat16().float()(victim.inputs).double()
    cost = cost_of(defended, target, truth, None).output_change
    assert cost == pytest.approx(float((moved - right).norm() / right.norm()), rel=0.02)


def test_a_frozen_layer_is_public_and_stays() -> None:
    victim = train(seed=44, steps=5)
    before = {**victim.before, **{key: value for key, value in victim.model.state_dict().items() if key[0] == "0"}}
    target = target_of_module(victim.model, input_shape=(40,), initial=before)
    seen = defend("noise0.1", target, None, 0).observation
    assert [layer.reads for layer in seen.layers] == ["frozen features"]
    reading, own = seen.layers[0].reading, target.observation.layers[0].reading
    assert reading is not None
    assert own is not None
    assert torch.equal(reading(victim.inputs), own(victim.inputs))


def test_a_layer_in_front_of_the_head_loses_the_units_of_the_features_that_go() -> None:
    victim = train(seed=45, steps=5)
    before = {**victim.before, **{key: value for key, value in victim.model.state_dict().items() if key[0] == "0"}}
    target = target_of_module(victim.model, input_shape=(40,), initial=before)
    pruned = defend("prune50", target, None, 0)
    (states,) = pruned.observation.layers
    kept = (pruned.head != 0).any(dim=0).nonzero()[:, 0]
    kept = kept[kept < 64]
    assert torch.equal(states.ends[-1], target.observation.layers[0].ends[-1][kept])
    assert torch.equal(states.target, target.observation.layers[0].target[kept])


def test_a_layer_as_wide_as_the_one_in_front_of_the_head_does_not_pass_for_it() -> None:
    """Of layer '0' the units with the smallest weights go, whatever features the head loses."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(48)
        model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
        before = copy.deepcopy(model.state_dict())
        made = torch.optim.SGD(model.parameters(), lr=0.1)
        nn.functional.cross_entropy(model(torch.randn(6, 40)), torch.arange(6) % 3).backward()
        made.step()
    target = target_of_module(model, input_shape=(40,), initial=before)
    assert target.in_front == "2"
    (whole,) = target.observation.layers
    assert whole.name == "0"
    pruned = defend("prune50", target, None, 0)
    (states,) = pruned.observation.layers
    sizes = whole.ends[-1][:, :40].double().norm(dim=1)
    assert torch.equal(states.target, whole.target[sizes.argsort()[32:].sort().values])
    assert "layer '0' without 32 of 64 units, which outputs here do not show" in pruned.note


@pytest.mark.parametrize("source", ["momentum", "average"])
def test_pruning_leaves_what_lies_beside_the_weights_whole(source: str) -> None:
    victim = train(seed=49, steps=5)
    before = {name: value.clone() for name, value in victim.before.items()}
    beside = Beside(victim.optimiser.state_dict()) if source == "momentum" else Beside(average=before)
    target = target_of_module(victim.model, input_shape=(40,), initial=before, beside=beside)
    pruned = defend("prune50", target, None, 0)
    (change, other), (whole_change, whole) = pruned.observation.layers, target.observation.layers
    assert (change.source, other.source, whole.source) == ("training", source, source)
    assert (change.h, whole_change.h) == (200, 400)
    assert torch.equal(other.target, whole.target)
    assert all(torch.equal(one, two) for one, two in zip(other.ends, whole.ends, strict=True))
    assert pruned.note.count("layer '0' without 200 of 400 units") == 1
    assert pruned.note.endswith("as it is")


def test_without_a_start_pruned_units_are_not_said_to_be_gone_from_the_optimisers_state() -> None:
    victim = train(seed=49, steps=5)
    target = target_of_module(victim.model, input_shape=(40,), beside=Beside(victim.optimiser.state_dict()))
    pruned = defend("prune50", target, None, 0)
    assert "layer '0' without" not in pruned.note
    assert pruned.note.endswith("the optimiser's state as it is")


def test_training_the_head_again_leaves_the_first_layer_as_it_was() -> None:
    victim = train(seed=46, steps=5)
    truth = records_of_rows(victim.inputs, torch.arange(12) % 3)
    private = defend("dp", target_of(victim), truth, 0)
    assert [layer.name for layer in private.observation.layers] == ["0"]
    assert private.note.endswith("layer '0' as it is")
