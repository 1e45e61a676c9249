"""What an audit says that its owner could have given: each line is of something that was not there, and helps."""

import copy

import pytest
import torch
from torch import nn

import exhume
from exhume.auditing.module_target import target_of_module
from exhume.auditing.stronger import stronger
from exhume.auditing.target import AuditTarget
from exhume.observing.beside import Beside
from exhume.recipe import Recipe

RECIPE = Recipe(optimiser="adam", rate=1e-3, steps=5)


def trained() -> tuple[nn.Sequential, dict[str, torch.Tensor], torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    before, optimiser = copy.deepcopy(model.state_dict()), torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, labels = torch.rand(6, 8), torch.arange(6) % 3
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return model, before, optimiser


MODEL, BEFORE, OPTIMISER = trained()


def said(target: AuditTarget, *recipe: str) -> str:
    return "\n".join(stronger(target, (), samples=True, recipe=recipe, records=True, control=True))


def test_what_helps_against_adam_is_named_where_it_was_not_given() -> None:
    given = said(target_of_module(MODEL, input_shape=(8,), initial=BEFORE), "adam")
    for words in ("--recipe-file", "the optimiser's state", "a checkpoint from shortly before the end"):
        assert words in given
    everything = target_of_module(
        MODEL, input_shape=(8,), initial=BEFORE, beside=Beside(OPTIMISER.state_dict(), None), training=RECIPE
    )
    assert "--recipe-file" not in said(everything, "adam")
    assert "the optimiser's state" not in said(everything, "adam")
    assert "Adam" not in said(target_of_module(MODEL, input_shape=(8,), initial=BEFORE), "sgd")


@pytest.mark.parametrize("hidden", [(), (nn.Linear(32, 32), nn.ReLU())])
def test_the_layers_before_the_head_are_asked_for_where_its_start_alone_is_known(hidden: tuple[nn.Module, ...]) -> None:
    """A two-layer network is seen as features of rows, and has a layer before its head all the same."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), *hidden, nn.Linear(32, 3))
    assert "The state of all layers before training" in said(target_of_module(model, input_shape=(8,), initial="zero"))
    alone = nn.Sequential(nn.Linear(8, 3))
    assert "The state of all layers" not in said(target_of_module(alone, input_shape=(8,), initial="zero"))


def test_an_audit_of_adam_says_so() -> None:
    audit = exhume.audit(MODEL, initial=BEFORE, recipe=["adam"], budget=3.0)
    assert any("--recipe-file" in line for line in audit.subject.stronger)
