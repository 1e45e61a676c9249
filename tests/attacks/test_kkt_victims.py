"""The conditions of margins and of weight decay, on victims that come close to them; no initial weight is known."""

from dataclasses import replace

import torch

from exhume.attacks.running.loop import run_attack
from exhume.attacks.tangent.newton import KktAttack
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

QUICK = KktAttack(starts=1, regrowths=0, stage_iterations=30, ladder=(3.0, 50.0))
SEEDS = range(3)


def recognised(config: TwoLayerConfig, samples: int, dim: int, seed: int) -> int:
    """Samples that a candidate has a cosine above 0.9 with: chance does not come near it."""
    data = load(DataConfig.parse(name="sphere", samples=samples, dim=dim, seed=seed, label_rule="sign"))
    trained = train_two_layer(config.model_copy(update={"seed": seed}), data).observation
    found = run_attack(replace(trained, initial_rows=None).knowing(None), QUICK, seed=seed).reconstruction
    cosines = torch.cosine_similarity(data.inputs[:, None].double(), found.candidates[None].double(), dim=2)
    return int((cosines.abs().max(dim=1).values > 0.9).sum())


def test_one_output_with_a_large_margin_gives_samples_away() -> None:
    recipe = DescentRecipe(until=1e-6, growing=True)
    config = TwoLayerConfig(width=300, loss="logistic", first_scale=0.05, recipe=recipe)
    assert sum(recognised(config, 6, 20, seed) for seed in SEEDS) >= 8, "of 18"


def test_weight_decay_gives_samples_away_from_a_start_of_the_usual_size() -> None:
    recipe = DescentRecipe(steps=20_000, weight_decay=0.02, until=1e-30)
    config = TwoLayerConfig(width=300, loss="logistic", recipe=recipe)
    assert sum(recognised(config, 5, 12, seed) for seed in SEEDS) >= 9, "of 15"
