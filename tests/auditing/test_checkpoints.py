"""Training checkpoints as they are saved: what lies beside the weights is found, attacked and told, and never run."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import exhume
from exhume.auditing.module_target import target_of_module
from exhume.auditing.plan import make_plan
from exhume.errors import ExhumeError
from exhume.observing.beside import Beside
from exhume.observing.optimiser_states import optimiser_layer
from exhume.observing.weights_file import read_weights
from silent_victims import Trained, rows, train


def weights_of(victim: Trained) -> dict[str, Tensor]:
    return victim.model.state_dict()


def averaged_victim(seed: int) -> tuple[Trained, dict[str, Tensor]]:
    """torch's own moving average of a training, beside the training."""
    victim = train(seed=seed, steps=40)
    average = AveragedModel(victim.model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
    labels = torch.arange(len(victim.inputs)) % 3
    for _ in range(40):
        victim.optimiser.zero_grad()
        nn.functional.cross_entropy(victim.model(victim.inputs), labels).backward()
        victim.optimiser.step()
        average.update_parameters(victim.model)
    return victim, copy.deepcopy(average.state_dict())


@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict"])
@pytest.mark.parametrize("optimiser", ["optimizer", "optimizer_state_dict"])
@pytest.mark.parametrize("ema", ["ema", "model_ema", "ema_state_dict"])
def test_all_parts_are_found_under_the_names_that_people_use(
    tmp_path: Path, key: str, optimiser: str, ema: str
) -> None:
    model = nn.Linear(3, 2)
    made = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    made.step()
    saved = {"epoch": 3, key: model.state_dict(), optimiser: made.state_dict(), ema: AveragedModel(model).state_dict()}
    torch.save(saved, tmp_path / "a.pt")
    found = read_weights(tmp_path / "a.pt")
    assert set(found.tensors) == {"weight", "bias"}
    assert found.beside.average is not None
    assert set(found.beside.average) == {"weight", "bias"}
    assert found.beside.optimiser is not None
    assert optimiser_layer(model, found.beside.optimiser, "").source == "adam"
    assert found.beside.notes == ()


def test_a_checkpoint_of_lightning_gives_its_optimiser(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    made = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(torch.ones(1, 3)).sum().backward()
    made.step()
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state, "optimizer_states": [made.state_dict()]}, tmp_path / "a.ckpt")
    found = read_weights(tmp_path / "a.ckpt").beside
    assert found.optimiser is not None
    assert "momentum_buffer" in found.optimiser["state"][0]
    assert found.notes == ()


@pytest.mark.parametrize(
    "odd",
    [
        {"optimizer": 3},
        {"optimizer": {"state": [], "param_groups": {}}},
        {"optimizer": {"state": {}, "param_groups": [{"params": ["a"]}]}},
        {"optimizer": {"state": {"a": {}}, "param_groups": []}},
        {"optimizer": [{"state": {}, "param_groups": []}, {"state": {}, "param_groups": []}]},
        {"ema": [torch.ones(2)]},
        {"ema": {"a": {"b": {"c": torch.ones(2)}}}},
        {"ema": {"a\x1b[2J": torch.ones(2)}},
        {"ema": {3: torch.ones(2)}},
    ],
)
def test_parts_of_another_form_are_left_out_and_this_is_said(tmp_path: Path, odd: dict[str, Any]) -> None:
    torch.save({"model": {"fc.weight": torch.ones(2, 3)}, **odd}, tmp_path / "a.pt")
    found = read_weights(tmp_path / "a.pt")
    assert (found.beside.optimiser, found.beside.average) == (None, None)
    assert len(found.beside.notes) == 1
    assert "not of the form that torch writes" in found.beside.notes[0]


@pytest.mark.parametrize("part", ["optimizer", "ema"])
def test_tensors_beside_the_weights_that_are_larger_than_the_file_are_refused(tmp_path: Path, part: str) -> None:
    large = torch.zeros(1).expand(50_000, 50_000)
    state = {"state": {0: {"exp_avg": large}}, "param_groups": [{"params": [0]}]}
    torch.save({"model": {"w": torch.ones(2)}, part: state if part == "optimizer" else {"w": large}}, tmp_path / "a.pt")
    with pytest.raises(ExhumeError, match="stored in full"):
        read_weights(tmp_path / "a.pt")


def test_what_the_form_of_a_state_does_not_need_is_left_behind(tmp_path: Path) -> None:
    state = {
        "state": {0: {"exp_avg": torch.ones(2), "note": "x", "step": 3}},
        "param_groups": [{"params": [0]}],
        "z": 1,
    }
    torch.save({"model": {"w": torch.ones(2)}, "optimizer": state, "lr": [0.1]}, tmp_path / "a.pt")
    kept = read_weights(tmp_path / "a.pt").beside.optimiser
    assert kept is not None
    assert set(kept) == {"state", "param_groups"}
    assert set(kept["state"][0]) == {"exp_avg"}


def test_parameters_in_groups_of_their_own_are_told_by_their_shapes() -> None:
    victim = train(seed=30, steps=2)
    parameters = dict(victim.model.named_parameters())
    for named in (False, True):
        groups: list[Any] = [
            {
                "params": [(n, p) if named else p for n, p in parameters.items() if n.endswith(end)],
                "weight_decay": decay,
            }
            for end, decay in (("bias", 0.0), ("weight", 0.01))
        ]
        made = torch.optim.AdamW(groups)
        made.zero_grad()
        victim.model(victim.inputs).sum().backward()
        made.step()
        layer = optimiser_layer(victim.model, made.state_dict(), "0")
        weight, bias = victim.layer.weight.grad, victim.layer.bias.grad
        assert weight is not None
        assert bias is not None
        assert torch.allclose(layer.target, 0.1 * torch.cat([weight, bias[:, None]], dim=1))


def test_an_optimiser_of_another_model_is_not_used() -> None:
    other = torch.optim.SGD(nn.Linear(7, 5).parameters(), momentum=0.9)
    other.param_groups[0]["params"][0].grad = torch.ones(5, 7)
    other.step()
    victim = train(seed=31, steps=1)
    with pytest.raises(ExhumeError, match=r"expected momentum_buffer or exp_avg of '0.weight'"):
        optimiser_layer(victim.model, other.state_dict(), "0")
    target = target_of_module(victim.model, input_shape=(40,), beside=Beside(other.state_dict()))
    assert target.observation.layers == ()
    assert "The optimiser's state was not used: expected momentum_buffer or exp_avg" in target.notes[-1]


def test_layers_that_the_optimisers_state_cannot_be_assigned_to_do_not_count_as_frozen() -> None:
    """Three layers of one shape, two of them trained: layer '6' reads features that moved."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(39)
        alike = [part for _ in range(3) for part in (nn.Linear(30, 30), nn.ReLU())]
        model = nn.Sequential(*alike, nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 3))
        made = torch.optim.SGD([p for n, p in model.named_parameters() if n[0] != "0"], lr=0.05, momentum=0.9)
        nn.functional.cross_entropy(model(torch.randn(6, 30)), torch.arange(6) % 3).backward()
        made.step()
    target = target_of_module(model, input_shape=(30,), beside=Beside(made.state_dict()))
    assert target.observation.layers == ()
    notes = " ".join(target.notes)
    assert "not assigned to '0.weight', '0.bias', '2.weight', '2.bias' and 2 more: the model and the opt" in notes
    assert "None of them counts as frozen." in notes


def test_a_layer_whose_bias_stays_open_is_left_out_and_the_others_are_used() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(39)
        model = nn.Sequential(nn.Linear(20, 90), nn.ReLU(), nn.Linear(90, 50), nn.ReLU(), nn.Linear(50, 50))
        model.append(nn.ReLU()).append(nn.Linear(50, 3))
        frozen = model[4].bias
        made = torch.optim.SGD([p for p in model.parameters() if p is not frozen], lr=0.05, momentum=0.9)
        nn.functional.cross_entropy(model(torch.randn(6, 20)), torch.arange(6) % 3).backward()
        made.step()
    target = target_of_module(model, input_shape=(20,), beside=Beside(made.state_dict()))
    assert [layer.name for layer in target.observation.layers] == ["0"]
    assert "not assigned to '2.bias', '4.bias':" in " ".join(target.notes)


def test_a_moving_average_that_equals_the_weights_is_told() -> None:
    victim = train(seed=31, steps=1)
    target = target_of_module(victim.model, input_shape=(40,), beside=Beside(average=weights_of(victim)))
    assert target.observation.layers == ()
    assert "The moving average was not used: it equals the weights" in target.notes[-1]


def test_each_state_is_an_attempt_of_its_own_the_strong_ones_first() -> None:
    victim, average = averaged_victim(seed=32)
    average = {name.removeprefix("module."): value for name, value in average.items() if name != "n_averaged"}
    beside = Beside(victim.optimiser.state_dict(), average)
    target = target_of_module(victim.model, input_shape=(40,), initial=victim.before, beside=beside)
    assert [layer.source for layer in target.observation.layers] == ["training", "average", "momentum"]
    offers = [offer for offer in make_plan(target, None, 0).offers if offer.method == "silent-units"]
    assert [offer.layer for offer in offers] == [0, 1, 2]
    assert [offer.seen(target.observation).layers[0].source for offer in offers] == ["training", "average", "momentum"]
    assert "Layer '0' (40 -> 400): the momentum buffer" in offers[2].why


@pytest.mark.parametrize("state", ["momentum", "average", "adam"])
def test_a_checkpoint_gives_samples_away_without_its_start(state: str) -> None:
    given: dict[str, Any]
    if state == "average":
        victim, average = averaged_victim(seed=33)
        given = {"average": {name.removeprefix("module."): value for name, value in average.items() if "." in name}}
    else:
        victim = train(seed=34, steps=5 if state == "adam" else 120, optimiser="Adam" if state == "adam" else "SGD")
        given = {"optimiser": victim.optimiser.state_dict()}
    done = exhume.audit(victim.model, truth=victim.inputs, budget_seconds=60, **given)
    first = done.subject.attempts[0]
    assert (first["method"], done.summary["method"], done.summary["target"]) == ("silent-units", "silent-units", state)
    assert done.summary["rank"] == 12
    assert done.summary["recovered"] == 12


def test_without_a_second_state_the_page_says_what_the_attack_needs() -> None:
    victim = train(seed=35, steps=3)
    plan = make_plan(target_of_module(victim.model, input_shape=(40,)), None, 0)
    needs = {line.method: line.why for line in plan.passed_over}["silent-units"]
    assert "an earlier checkpoint (--initial), or a checkpoint with the optimiser's state or a moving average" in needs


def test_an_earlier_checkpoint_of_the_same_training_is_a_start() -> None:
    early, late = train(seed=36, steps=20), train(seed=36, steps=60)
    assert torch.equal(early.start, late.start)
    done = exhume.audit(late.model, initial=early.model.state_dict(), truth=late.inputs, budget_seconds=60)
    assert done.summary["method"] == "silent-units"
    assert done.summary["recovered"] == 12


def test_a_layer_that_is_not_the_first_is_not_attacked_and_the_reason_is_told() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 50), nn.ReLU(), nn.Linear(50, 2))
    before = copy.deepcopy(model.state_dict())
    made = torch.optim.SGD(model.parameters(), lr=0.1)
    model(rows(4, 16, 0).reshape(4, 1, 4, 4)).square().sum().backward()
    made.step()
    target = target_of_module(model, input_shape=(1, 4, 4), initial=before)
    assert target.observation.layers == ()
    why = {line.method: line.why for line in make_plan(target, None, 0).passed_over}["silent-units"]
    assert "layer '3': it reads features behind '0' that are not known to be fixed, and not the inputs" in why


def test_a_first_layer_that_was_frozen_is_told() -> None:
    victim = train(seed=37, steps=3)
    now = victim.model.state_dict()
    before = {name: victim.before[name] if name[0] == "4" else now[name] for name in now}
    target = target_of_module(victim.model, input_shape=(40,), initial=before)
    words = {line.method: line.why for line in make_plan(target, None, 0).passed_over}["silent-units"]
    assert "layer '0': both states of it are the same" in words


def test_the_first_layer_that_was_trained_is_attacked_behind_frozen_ones() -> None:
    victim = train(seed=37, steps=3)
    before = {**victim.before, **{name: value for name, value in victim.model.state_dict().items() if name[0] == "0"}}
    target = target_of_module(victim.model, input_shape=(40,), initial=before)
    offers = [offer.why for offer in make_plan(target, None, 0).offers if offer.method == "silent-units"]
    assert len(offers) == 1
    assert (
        "Layer '2' (400 -> 64), which reads frozen features: the change in training since the known start" in offers[0]
    )


def frozen_extractor() -> tuple[nn.Sequential, list[nn.Parameter]]:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 80), nn.Tanh(), nn.Linear(80, 400), nn.ReLU(), nn.Linear(400, 3))
    return model, [*model[3].parameters(), *model[5].parameters()]


def convolution() -> tuple[nn.Sequential, list[nn.Parameter]]:
    model = nn.Sequential(nn.Conv2d(1, 300, 3, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(1200, 3))
    return model, list(model.parameters())


@pytest.mark.parametrize(
    ("make", "reads", "rank"), [(frozen_extractor, "frozen features", 5), (convolution, "patches of the inputs", 8)]
)
def test_an_optimisers_state_gives_embeddings_and_patches_away(make: Any, reads: str, rank: int) -> None:
    n = 5 if reads == "frozen features" else 2
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(38)
        model, trained = make()
        inputs = torch.randn(n, 1, 6, 6)
        made = torch.optim.SGD(trained, lr=0.05, momentum=0.9)
        for _ in range(30):
            made.zero_grad()
            nn.functional.cross_entropy(model(inputs), torch.arange(n) % 3).backward()
            made.step()
    state = made.state_dict()
    target = target_of_module(model, input_shape=(1, 6, 6), beside=Beside(state))
    assert [(layer.source, layer.reads) for layer in target.observation.layers] == [("momentum", reads)]
    done = exhume.audit(model, optimiser=state, truth=inputs, budget_seconds=150)
    assert (done.summary["method"], done.summary["target"]) == ("silent-units", "momentum")
    assert done.summary["rank"] == rank
    assert done.summary["recovered"] == n
