"""Run folders to report on: one with a real attack, and others whose reconstruction is made up to be known."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running.loop import run_attack
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.experiments.run import RunFolder
from exhume.reconstruction import Certificate, Outcome, Reconstruction
from exhume_papers.making.training_run import train_run
from exhume_papers.victims.random_features import RandomFeaturesConfig

FACES = DataConfig(name="faces", samples=3)
SPHERE = DataConfig(name="sphere", samples=4, dim=6)
MakeRun = Callable[..., RunFolder]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for config in (FACES, SPHERE):
        folders[config.name] = tmp_path_factory.mktemp("trained") / config.name
        train_run(folders[config.name], config, RandomFeaturesConfig(params=60), load(config))
    return folders


@pytest.fixture
def attacked(trained: dict[str, Path], tmp_path: Path) -> RunFolder:
    """Three faces, sixty weights, twelve iterations of the published attack."""
    run = RunFolder(shutil.copytree(trained["faces"], tmp_path / "attacked"))
    attack = run_attack(run.observation(), HeavyBall(iterations=12), seed=3)
    run.save_attack(attack.reconstruction, attack.trace)
    return run


@pytest.fixture
def make_run(trained: dict[str, Path], tmp_path: Path) -> MakeRun:
    """A run whose candidates are the truth, shifted by one, the first `wrong` samples replaced by noise."""

    def make(
        data: str = "faces",
        outcome: Outcome = Outcome.RECOVERED,
        wrong: int = 0,
        has_truth: bool = True,
        name: str = "a run",
        held_out_loss: float | None = 2e-9,
        candidates: int | None = None,
    ) -> RunFolder:
        run = RunFolder(shutil.copytree(trained[data], tmp_path / name))
        truth = run.truth()
        assert truth.coefficients is not None
        rows, noise = truth.inputs.clone(), torch.Generator().manual_seed(5)
        rows[:wrong] = torch.randn(rows[:wrong].shape, generator=noise)
        rows[-1] *= -1
        rows, alpha = rows.roll(1, dims=0)[:candidates], truth.coefficients.roll(1)[:candidates]
        found = Reconstruction(
            candidates=rows,
            coefficients=alpha.float()[:, None],
            method="heavy-ball",
            certificate=Certificate(outcome, held_out_loss, 0 if held_out_loss is None else 3, ()),
            loss=1e-9,
            iterations=999,
            passes=1999.0,
            seconds=1.25,
            peak_memory_mb=99.0,
            seed=3,
            settings={"samples": len(truth.inputs), "tolerance": 1e-7},
        )
        trace = [{"iteration": float(i), "loss": 0.98**i, "passes": 2.0 * i + 1} for i in range(1000)]
        run.save_attack(found, trace)
        if not has_truth:
            (run.path / "truth.safetensors").unlink()
        return run

    return make
