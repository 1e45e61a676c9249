"""A start that holds some of the layers: what is in it is known, and the rest is not taken to have stood still."""

import copy
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import exhume
from exhume.auditing.from_files import read_question
from exhume.errors import ExhumeError
from exhume.observing.of_module import look_at
from exhume.requests.audit import AuditRequest

State = dict[str, Tensor]
CODE = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(12, 200), nn.ReLU(), nn.Linear(200, 60), nn.ReLU(), nn.Linear(60, 3))
"""


def trained(*widths: int, frozen: bool = False) -> tuple[nn.Sequential, State]:
    """A default network after some steps of SGD, and its start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for one, two in pairwise(widths):
            layers += [nn.Linear(one, two), nn.ReLU()]
        model = nn.Sequential(*layers[:-1])
        inputs, labels = torch.randn(6, widths[0]), torch.arange(6) % widths[-1]
    before = copy.deepcopy(model.state_dict())
    head = model[-1]
    assert isinstance(head, nn.Linear)
    optimiser = torch.optim.SGD(head.parameters() if frozen else model.parameters(), lr=0.1)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return model, before


def only(state: State, *layers: str) -> State:
    return {name: value for name, value in state.items() if name.rpartition(".")[0] in layers}


def test_the_head_alone() -> None:
    model, before = trained(12, 200, 3)
    whole, seen = look_at(model, (12,), initial=before), look_at(model, (12,), initial=only(before, "2"))
    assert seen.initial_head is not None
    assert torch.equal(seen.head - seen.initial_head, seen.observation.weights)
    assert seen.observation.knowledge.initial == "known"
    assert seen.drift is None, "nobody knows how far the features moved"
    assert seen.observation.knowledge.initial_body is None
    assert seen.observation.ridge.trained
    assert (seen.observation.ends, seen.observation.layers, seen.observation.initial_rows) == (None, (), None)
    assert torch.equal(seen.observation.weights, whole.observation.weights)


def test_the_first_layer_alone_is_enough_for_silent_units() -> None:
    model, before = trained(12, 200, 60, 3)
    seen = exhume.observe(model, initial=only(before, "0"))
    assert seen.knowledge.initial == "distribution"
    assert [layer.name for layer in seen.layers] == ["0"]
    found = exhume.reconstruct(seen, method="silent-units", budget=20)
    assert found.outcome is exhume.Outcome.RECOVERED
    assert len(found.inputs) == 6


def test_layers_behind_one_that_nobody_knows_read_features_that_may_have_moved() -> None:
    model, before = trained(12, 200, 60, 3)
    assert exhume.observe(model, initial=only(before, "2", "4")).layers == ()


def test_a_body_that_stood_still_is_told_from_one_that_nobody_knows() -> None:
    model, before = trained(12, 200, 3, frozen=True)
    assert not look_at(model, (12,), initial=before).observation.ridge.trained
    assert look_at(model, (12,), initial=only(before, "2")).observation.ridge.trained


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda state: {"0.weight": state["0.weight"]},
            "expected whole layers .*, found no 0.bias",
        ),
        (lambda state: {"other.weight": state["0.weight"]}, "other.weight that the model does not have"),
        (lambda state: only(state, "0") | {"x": torch.ones(1)}, "x that the model does not have"),
        (lambda state: {"0.weight": state["0.weight"].T, "0.bias": state["0.bias"]}, "instead of"),
        (lambda state: {}, "expected the initial weights to fit the model, found no 0.weight"),
    ],
)
def test_what_fits_no_layer_is_one_line(change: object, words: str) -> None:
    model, before = trained(12, 200, 3)
    with pytest.raises(ExhumeError, match=words) as refused:
        exhume.observe(model, initial=change(before))  # type: ignore[operator]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("code", [True, False])
@pytest.mark.parametrize("part", ["0", "4"])
def test_files_of_some_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: bool, part: str) -> None:
    """The same through every door."""
    monkeypatch.chdir(tmp_path)
    Path("nets_of_some_layers.py").write_text(CODE)
    model, before = trained(12, 200, 60, 3)
    save_file(model.state_dict(), "after.safetensors")
    save_file(only(before, part), "before.safetensors")
    found = read_question(
        AuditRequest(
            weights=Path("after.safetensors"),
            initial="before.safetensors",
            model="nets_of_some_layers:net" if code else None,
            out=Path("out"),
        )
    ).target.observation
    seen = exhume.observe(model, initial=only(before, part))
    assert torch.equal(found.weights, seen.weights)
    assert found.knowledge == seen.knowledge
    assert [layer.name for layer in found.layers] == [layer.name for layer in seen.layers]
    save_file(only(model.state_dict(), part), "before.safetensors")
    with pytest.raises(ExhumeError, match="found the same weights twice"):
        read_question(AuditRequest(weights=Path("after.safetensors"), initial="before.safetensors", out=Path("out")))
