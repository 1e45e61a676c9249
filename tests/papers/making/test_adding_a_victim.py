"""A victim with a training of its own, added as docs/architecture.md says: a configuration, its options, two lines."""

from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from exhume.data.dataset import Dataset
from exhume.experiments.run import RunFolder
from exhume.requests.request import Option
from exhume_papers.making.request_kinds import KINDS
from exhume_papers.making.training import TRAINING, TrainedVictim
from exhume_papers.making.victim_request import VictimRequest
from exhume_papers.sweeps.engines import HereEngine
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweeping import run_sweep
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features
from exhume_papers.victims.victim_config import VictimConfig


class TwiceConfig(VictimConfig):
    """Random features, fitted to twice the labels."""

    kind: ClassVar[str] = "twice"

    params: int
    seed: int = 0
    privacy: None = None

    def head_weights(self, data: Dataset) -> int:
        return self.params


class TwiceRequest(VictimRequest):
    command: ClassVar[str] = "train twice"

    params: Annotated[int, Option("p.")] = 12

    def config(self, data: Dataset) -> VictimConfig:
        return TwiceConfig(params=self.params, seed=self.seed)


def train_twice(config: TwiceConfig, data: Dataset, folder: Path, around: object) -> TrainedVictim:
    fitted = RandomFeaturesConfig(params=config.params, seed=config.seed)
    victim = train_random_features(fitted, data, draw_rows(fitted, data.inputs.shape[1]))
    seen = victim.observation
    doubled = type(seen)(seen.features, 2 * seen.weights, seen.knowledge)
    return TrainedVictim(config.name, doubled, {"training_loss": victim.training_loss}, in_the_span=True)


def test_a_new_victim_is_trained_and_attacked_by_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "twice", TwiceRequest)
    with_it: dict[type[VictimConfig], Any] = {**TRAINING, TwiceConfig: train_twice}
    monkeypatch.setattr("exhume_papers.making.training.TRAINING", with_it)
    victim: dict[str, Any] = {"kind": "twice", "data": "sphere", "dim": 6, "samples": 2, "params": [12, 24]}
    plan = Sweep(victims=(victim,), attacks=({"method": "heavy-ball", "iterations": 3},), seeds=(1,)).plan()
    swept = run_sweep(plan, tmp_path, HereEngine(tmp_path))
    assert (swept.done, swept.failed) == (2, 0)
    runs = [RunFolder(tmp_path / "runs" / run.key) for run in plan.runs]
    assert sorted(run.observation().p for run in runs) == [12, 24]
    assert {run.config()["victim"] for run in runs} == {"twice"}
