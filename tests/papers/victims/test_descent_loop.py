"""The loop on a quadratic bowl: loss = (curvature / 2) Σ_i (w − c_i)² / n, whose every step is known."""

import math
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.files import read_tensors, write_tensors
from exhume_papers.victims.descent_loop import Surroundings, Tensors, descend
from exhume_papers.victims.recipe import DescentRecipe


class Bowl:
    """One weight; `claimed` is the curvature that it reports, `actual` the one that it has."""

    def __init__(self, claimed: float = 1.0, actual: float = 1.0, samples: int = 4, spread: float = 0.0) -> None:
        self.weight = torch.tensor(10.0, dtype=torch.float64)
        self.centres = spread * (torch.arange(samples) % 2 * 2.0 - 1).double()
        self.claimed, self.actual, self.slope = claimed, actual, torch.tensor(0.0)
        self.batches: list[list[int]] = []

    @property
    def samples(self) -> int:
        return len(self.centres)

    def loss(self) -> float:
        return float(self.actual / 2 * (self.weight - self.centres).square().mean())

    def differentiate(self, batch: Tensor | None) -> float:
        centres = self.centres if batch is None else self.centres[batch]
        self.batches += [] if batch is None else [batch.tolist()]
        self.slope = self.actual * (self.weight - centres).mean()
        return float(self.actual / 2 * (self.weight - centres).square().mean())

    def move(self, step_size: float) -> None:
        self.weight = self.weight - step_size * self.slope

    def curvature(self, batch: Tensor | None) -> float:
        return self.claimed

    def state(self) -> Tensors:
        return {"weight": self.weight}

    def restore(self, state: Tensors) -> None:
        self.weight = state["weight"].clone()


def test_the_step_is_the_inverse_of_the_measured_curvature_and_the_target_is_reached() -> None:
    bowl = Bowl(claimed=4.0)
    went = descend(bowl, DescentRecipe(), 1e-6, Surroundings())
    assert (went.step_size, went.curvature, went.stopped, went.lowered) == (0.25, 4.0, "target", 0)
    assert went.steps == math.ceil(math.log(50 / 1e-6) / (2 * math.log(4 / 3)))
    assert went.loss == bowl.loss() <= 1e-6
    assert went.history[0].loss == 50
    assert went.history[-1].steps == went.steps


def test_momentum_takes_a_step_that_is_smaller_by_what_it_adds() -> None:
    assert descend(Bowl(2.0), DescentRecipe(momentum=0.9, steps=1), 0, Surroundings()).step_size == pytest.approx(0.05)


def test_weight_decay_counts_as_curvature() -> None:
    assert descend(Bowl(2.0), DescentRecipe(weight_decay=3.0, steps=1), 0, Surroundings()).step_size == 0.2


@pytest.mark.parametrize(
    "recipe", [DescentRecipe(), DescentRecipe(momentum=0.1), DescentRecipe(method="sgd", batch_size=2)]
)
def test_a_step_that_makes_the_loss_rise_is_halved_and_counted(recipe: DescentRecipe) -> None:
    went = descend(Bowl(claimed=1.0, actual=7.0), recipe, 1e-6, Surroundings())
    assert went.stopped == "target"
    assert went.lowered == 2
    assert went.step_size == pytest.approx((1 - recipe.momentum) / 4)
    assert "halved 2 times because the loss rose" in went.describe()
    assert [point.steps for point in went.history] == sorted({point.steps for point in went.history})


def test_a_step_that_was_given_is_kept_and_overflow_is_one_line() -> None:
    with pytest.raises(ExhumeError, match=r"stay finite, found overflow after .* steps of 3; give a smaller step"):
        descend(Bowl(), DescentRecipe(step_size=3.0), 1e-6, Surroundings())
    assert descend(Bowl(), DescentRecipe(step_size=1.9), 1e-6, Surroundings()).step_size == 1.9


def test_a_loss_without_a_good_step_is_one_line() -> None:
    with pytest.raises(ExhumeError, match="at which the loss does not double"):
        descend(Bowl(claimed=1.0, actual=1e15), DescentRecipe(momentum=0.5), 1e-6, Surroundings())
    for claimed in (0.0, math.nan, math.inf):
        with pytest.raises(ExhumeError, match="positive curvature"):
            descend(Bowl(claimed), DescentRecipe(), 1e-6, Surroundings())
    with pytest.raises(ExhumeError, match="finite loss at the start"):
        descend(Bowl(actual=math.inf), DescentRecipe(), 1e-6, Surroundings())


def test_training_stops_at_the_number_of_steps_also_inside_an_epoch() -> None:
    assert descend(Bowl(4.0), DescentRecipe(steps=3), 1e-6, Surroundings()).steps == 3
    bowl = Bowl(4.0, samples=10)
    went = descend(bowl, DescentRecipe(method="sgd", batch_size=2, steps=7), 1e-6, Surroundings())
    assert (went.steps, went.stopped, len(bowl.batches)) == (7, "steps", 7)


def test_a_loss_that_no_longer_falls_ends_the_training() -> None:
    went = descend(Bowl(spread=1.0), DescentRecipe(), 1e-6, Surroundings())
    assert went.stopped == "flat"
    assert went.steps == 2000
    assert went.loss == 0.5


def test_epochs_visit_every_sample_once_in_an_order_of_their_own() -> None:
    bowl = Bowl(100.0, samples=7)
    descend(bowl, DescentRecipe(method="sgd", batch_size=3, steps=6, seed=4), 1e-9, Surroundings())
    epochs = [list(chain(*bowl.batches[:3])), list(chain(*bowl.batches[3:6]))]
    assert [sorted(epoch) for epoch in epochs] == [list(range(7))] * 2
    assert epochs[0] != epochs[1]


def test_progress_is_told_the_steps_and_the_loss() -> None:
    told: list[tuple[int, float]] = []
    descend(Bowl(2.0), DescentRecipe(steps=2), 0, Surroundings(progress=lambda steps, loss: told.append((steps, loss))))
    assert told == [(0, 50.0), (1, 12.5), (2, 3.125)]


@pytest.mark.parametrize(
    "recipe", [DescentRecipe(), DescentRecipe(method="sgd", batch_size=1), DescentRecipe(momentum=0.5)]
)
@pytest.mark.parametrize("after", [0, 1, 17])
def test_resumed_equals_undisturbed(tmp_path: Path, recipe: DescentRecipe, after: int) -> None:
    path = tmp_path / "checkpoint.safetensors"
    undisturbed, disturbed = Bowl(3.0, 4.0, spread=0.1), Bowl(3.0, 4.0, spread=0.1)
    whole = descend(undisturbed, recipe, 0.0, Surroundings())
    rounds = iter(range(1000))
    first = descend(disturbed, recipe, 0.0, Surroundings(checkpoint=path, stop=lambda: next(rounds) == after))
    assert first.stopped == "interrupted"
    again = Bowl(3.0, 4.0, spread=0.1)
    second = descend(again, recipe, 0.0, Surroundings(checkpoint=path))
    assert second == whole
    assert torch.equal(again.weight, undisturbed.weight)
    assert not path.exists(), "a training that ended by itself leaves no checkpoint"


def test_checkpoints_are_written_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    seen = []
    around = Surroundings(progress=lambda steps, loss: seen.append(path.exists()), checkpoint=path, seconds_between=0)
    descend(Bowl(2.0), DescentRecipe(steps=3), 0, around)
    assert seen == [False, True, True, True]


def test_the_checkpoint_of_another_training_or_a_damaged_one_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    stopped = Surroundings(checkpoint=path, stop=lambda: True)
    descend(Bowl(), DescentRecipe(steps=5, step_size=0.1), 0.0, stopped)
    with pytest.raises(ExhumeError, match=r"the checkpoint of this training at .*, found another one's; remove it"):
        descend(Bowl(), DescentRecipe(steps=6, step_size=0.1), 0.0, Surroundings(checkpoint=path))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ExhumeError, match="whole safetensors file"):
        descend(Bowl(), DescentRecipe(steps=5, step_size=0.1), 0.0, Surroundings(checkpoint=path))


def change_weight(tensors: Tensors, meta: dict[str, Any]) -> None:
    tensors["state.weight"] = tensors["state.weight"] + 1e-15


def change_number(tensors: Tensors, meta: dict[str, Any]) -> None:
    meta["numbers"]["steps"] = 3


@pytest.mark.parametrize("change", [change_weight, change_number])
def test_a_checkpoint_that_was_changed_is_refused_rather_than_continued_from(
    tmp_path: Path, change: Callable[[Tensors, dict[str, Any]], None]
) -> None:
    path, recipe = tmp_path / "checkpoint.safetensors", DescentRecipe(steps=5, step_size=0.1)
    descend(Bowl(), recipe, 0.0, Surroundings(checkpoint=path, stop=lambda: True))
    rewrite(path, change)
    with pytest.raises(ExhumeError, match=r"found damage at numbers that are not those that were saved; delete it"):
        descend(Bowl(), recipe, 0.0, Surroundings(checkpoint=path))


def test_a_checkpoint_of_the_first_form_has_no_digest_and_is_continued_from(tmp_path: Path) -> None:
    path, recipe = tmp_path / "checkpoint.safetensors", DescentRecipe(steps=5, step_size=0.1)
    descend(Bowl(), recipe, 0.0, Surroundings(checkpoint=path, stop=lambda: True))
    rewrite(path, lambda tensors, meta: meta.pop("digest"))
    assert descend(Bowl(), recipe, 0.0, Surroundings(checkpoint=path)) == descend(Bowl(), recipe, 0.0, Surroundings())


def set_history(value: float) -> Callable[[Tensors, dict[str, Any]], None]:
    return lambda tensors, meta: tensors.update(history=torch.tensor([[value, 1.0]], dtype=torch.float64))


def set_number(name: str, value: object) -> Callable[[Tensors, dict[str, Any]], None]:
    return lambda tensors, meta: meta["numbers"].update({name: value})


@pytest.mark.parametrize(
    "change",
    [set_history(math.inf), set_history(math.nan), set_number("steps", "3"), set_number("last", None)],
)
def test_damage_without_a_digest_is_one_line(tmp_path: Path, change: Callable[[Tensors, dict[str, Any]], None]) -> None:
    path, recipe = tmp_path / "checkpoint.safetensors", DescentRecipe(steps=5, step_size=0.1)
    descend(Bowl(), recipe, 0.0, Surroundings(checkpoint=path, stop=lambda: True))
    rewrite(path, change)
    rewrite(path, lambda tensors, meta: meta.pop("digest"))
    with pytest.raises(ExhumeError, match=r"expected a whole checkpoint at .*, found damage at .*; delete it"):
        descend(Bowl(), recipe, 0.0, Surroundings(checkpoint=path))


def rewrite(path: Path, change: Callable[[Tensors, dict[str, Any]], object]) -> None:
    file = read_tensors(path, "training-checkpoint")
    change(file.tensors, file.meta)
    write_tensors(path, "training-checkpoint", file.tensors, file.meta)
