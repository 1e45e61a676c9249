"""An attack on a run folder: what is kept until everything is written, and what is the same however often it stops."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running import loop
from exhume.attacks.running.loop import Limits, Progress
from exhume.attacks.running.prepare import prepare
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.running.snapshots import SNAPSHOTS_FILE, load_snapshots
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.attacking import AttackedRun, attack_run
from exhume.experiments.run import RunFolder
from exhume_papers.making.training_run import train_run
from exhume_papers.victims.random_features import RandomFeaturesConfig

METHOD = HeavyBall(step_size=2.0, iterations=40, tolerance=0.0)


def attacked(run: RunFolder, method: HeavyBall, watch: Any = None, **settings: Any) -> AttackedRun:
    return attack_run(run, prepare(run.observation(), AttackSettings(method, **settings)), watch)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)  # after every iteration
    data = DataConfig(name="sphere", samples=2, dim=6)
    train_run(tmp_path / "run", data, RandomFeaturesConfig(params=60), load(data))
    return RunFolder(tmp_path / "run")


def crash_at(iteration: int) -> Any:
    def watch(progress: Progress) -> None:
        if progress.step.iteration == iteration:
            raise RuntimeError("gone")

    return watch


def test_the_checkpoint_stays_until_what_was_found_is_written(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise ExhumeError("expected a writable place, found: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_attack", full)
        with pytest.raises(ExhumeError, match="No space"):
            attacked(run, METHOD)
    assert run.checkpoint.exists(), "hours of work are in it"
    shown: list[int] = []
    attacked(run, METHOD, watch=lambda progress: shown.append(progress.step.iteration))
    assert shown == [40], "all but the last iteration is not computed again"
    assert not run.checkpoint.exists()


def test_snapshots_of_an_attack_that_crashed_are_those_of_one_that_did_not(run: RunFolder) -> None:
    calm = RunFolder(Path(shutil.copytree(run.path, run.path.with_name("calm"))))
    attacked(calm, METHOD)
    attacked(run, HeavyBall(iterations=3), seed=9)  # leaves snapshots of its own
    with pytest.raises(RuntimeError, match="gone"):
        attacked(run, METHOD, watch=crash_at(29))
    attacked(run, METHOD)
    ours, theirs = (load_snapshots(folder.path / SNAPSHOTS_FILE) for folder in (run, calm))
    assert [shot.iteration for shot in ours] == [shot.iteration for shot in theirs]
    assert ours[0].iteration == 0
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine.candidates, other.candidates)


def test_a_budget_that_is_too_small_is_refused_before_anything_is_written(run: RunFolder) -> None:
    before = sorted(run.path.iterdir())
    with pytest.raises(UsageError, match=r"at least \d+M for 2 samples and p = 60, d = 6, found 100M"):
        attacked(run, METHOD, limits=Limits(memory_bytes=100 * 2**20))
    assert sorted(run.path.iterdir()) == before
