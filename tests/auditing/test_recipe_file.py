"""The recipe of a training on its way to an audit's plan."""

import pytest
import torch
from torch import nn

from exhume.auditing.module_target import target_of_module
from exhume.auditing.plan import make_plan
from exhume.errors import UsageError
from exhume.experiments.attack_request import AttackRequest
from exhume.recipe import Recipe
from exhume.requests.audit import AuditRequest

RECIPE = Recipe(optimiser="adam", rate=1e-3, steps=5)


def _offered(recipe: Recipe | None, samples: int | None) -> bool:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 2))
    before = {name: value - 0.01 for name, value in model.state_dict().items()}
    target = target_of_module(model, input_shape=(4,), initial=before, training=recipe)
    plan = make_plan(target, samples, seed=0)
    offered = any(offer.method == "replay" for offer in plan.offers)
    assert offered != any(passed.method == "replay" for passed in plan.passed_over)
    return offered


def test_an_audit_replays_a_declared_training_of_so_many_samples() -> None:
    assert _offered(RECIPE, 3)
    assert _offered(RECIPE.model_copy(update={"labels": (0, 1)}), None)
    assert not _offered(RECIPE, None)
    assert not _offered(None, 3)


def test_a_recipe_without_its_network_or_method_is_refused() -> None:
    with pytest.raises(UsageError, match="expected --model and --initial with --recipe-file"):
        AuditRequest.from_config({"weights": "a.pt", "model": "m:f", "recipe_file": "r.json", "out": "o"}).check()
    with pytest.raises(UsageError, match="expected --recipe-file with --method replay, found auto"):
        AttackRequest(recipe_file="r.json")._check_files_are_used()
