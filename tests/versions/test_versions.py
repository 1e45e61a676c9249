"""Files of earlier versions are read, and those of later ones are refused in one line.

The folders v1, v2, ... hold what the first version with that layout wrote; `make.py` makes a new one.
"""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.prior.spectrum import load_spectrum
from exhume.attacks.running.checkpoint import load_checkpoint
from exhume.attacks.running.loop import run_attack
from exhume.attacks.running.prepare import prepare
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.running.snapshots import SNAPSHOTS_FILE, load_snapshots
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.errors import ExhumeError
from exhume.experiments.attacking import AttackedRun, attack_run
from exhume.experiments.documents import read_config
from exhume.experiments.run import RunFolder
from exhume.experiments.scoring import score_run
from exhume.features.rows import MappedRows
from exhume.files import read_json, write_json
from exhume.known import load_known
from exhume.observation import load_observation
from exhume.report.page import rebuild, write_report
from exhume.tensor_header import read_header
from exhume_papers.making.known_samples import write_known
from exhume_papers.making.training_run import train_run
from exhume_papers.studies.comparing import as_json
from exhume_papers.sweeps.engine_choice import make_engine
from exhume_papers.sweeps.listing import list_runs
from exhume_papers.sweeps.spec_file import plan_spec
from exhume_papers.sweeps.sweep_folder import SweepFolder
from exhume_papers.sweeps.sweeping import run_sweep
from exhume_papers.victims.random_features import RandomFeaturesConfig

HERE = Path(__file__).parent
FIRST = HERE / "v1"
KINDS = (".json", ".safetensors")


def attacked(run: RunFolder, method: HeavyBall, watch: Any = None, **settings: Any) -> AttackedRun:
    return attack_run(run, prepare(run.observation(), AttackSettings(method, **settings)), watch)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIRST, tmp_path / "v1"))


def test_every_part_of_a_first_run_is_read(first: Path) -> None:
    run = RunFolder.existing(first / "run")
    observation, found, truth = run.observation(), run.reconstruction(), run.truth()
    assert observation.weights.shape == (1, 60)
    assert observation.image_shape == truth.image_shape == (3, 4, 4)
    assert found.candidates.shape == truth.inputs.shape == (2, 48)
    assert found.method == "heavy-ball"
    assert run.summary()["samples_found"] == 2
    assert read_config(run.path / "config.json")["model"]["params"] == 60
    assert [line["iteration"] for line in run.trace()] == [0, 1, 2, 3]
    assert len(load_snapshots(run.path / SNAPSHOTS_FILE)) == 4
    assert len(load_known(run.path / "known.safetensors", 48).inputs) == 1
    assert MappedRows.open(run.path / "features.safetensors").block(0, 60).shape == (60, 48)
    assert load_spectrum(first / "spectrum.json").source == "made up"


def test_the_numbers_of_a_first_run_follow_from_its_observation(first: Path) -> None:
    run = RunFolder.existing(first / "run")
    before, scores = run.reconstruction(), run.summary()
    attacked = run_attack(run.observation(), HeavyBall(iterations=3), seed=before.seed).reconstruction
    torch.testing.assert_close(attacked.candidates, before.candidates, rtol=0, atol=1e-4)
    assert score_run(run).summary()["error"] == pytest.approx(scores["error"], rel=1e-4)


def test_a_first_run_is_reported_and_its_page_made_again(first: Path) -> None:
    assert rebuild(first / "run" / "report.json").stat().st_size > 10_000
    assert write_report(RunFolder.existing(first / "run"), reveal=False).stat().st_size > 10_000
    assert list_runs(first).keys() == {"run", "network"}


def test_an_attack_goes_on_from_a_first_checkpoint(first: Path) -> None:
    run = RunFolder.existing(first / "run")
    shutil.copyfile(first / "checkpoint.safetensors", run.checkpoint)
    settings = read_header(run.checkpoint).exhume["settings"]
    assert load_checkpoint(run.checkpoint, settings) is not None
    done = attacked(run, HeavyBall(iterations=4))
    assert done.summary["iterations"] == 4


def test_a_first_network_is_read(first: Path) -> None:
    seen = load_observation(first / "network" / "observation.safetensors")
    assert seen.start is not None
    assert seen.knowledge.initial == "seed"


def test_a_first_sweep_has_nothing_left_to_do(first: Path) -> None:
    folder = first / "grid"
    grid, plan = plan_spec(first / "grid.toml")
    swept = run_sweep(plan, folder, make_engine("here", folder), keep=grid.keep)
    assert (swept.done, swept.failed, swept.left) == (1, 0, 0)
    assert swept.work_seconds == 0, "nothing was run"


def bump(path: Path) -> None:
    """The same file as a later version might write it."""
    if path.suffix == ".json":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
        return
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    told = json.loads(header.get("__metadata__", {}).get("exhume", "{}")) | {"schema": 99}
    header["__metadata__"] = {"exhume": json.dumps(told)}
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % 8)
    path.write_bytes(struct.pack("<Q", len(written)) + written + content[8 + length :])


READERS: dict[str, Callable[[Path], object]] = {
    "run/config.json": read_config,
    "run/summary.json": lambda path: RunFolder(path.parent).summary(),
    "run/report.json": rebuild,
    "run/observation.safetensors": load_observation,
    "run/features.safetensors": MappedRows.open,
    "run/reconstruction.safetensors": lambda path: RunFolder(path.parent).reconstruction(),
    "run/truth.safetensors": lambda path: RunFolder(path.parent).truth(),
    "run/snapshots.safetensors": load_snapshots,
    "run/known.safetensors": lambda path: load_known(path, 48),
    "checkpoint.safetensors": lambda path: load_checkpoint(path, {}),
    "spectrum.json": load_spectrum,
    "grid/runs/2fc763a9eb7f4966/summary.json": lambda path: list_runs(path.parents[2]),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_a_later_version_is_one_clear_line(first: Path, name: str) -> None:
    bump(first / name)
    with pytest.raises(ExhumeError, match=r"schema .* found '99'; use the exhume version that wrote it"):
        READERS[name](first / name)


def test_every_file_that_is_written_now_says_its_schema(first: Path) -> None:
    """Tables (.csv) have none of their own: they belong to the JSON beside them."""
    data = DataConfig(name="sphere", samples=2, dim=3)
    train_run(first / "new", data, RandomFeaturesConfig(params=24, features="file", fit="ridge", ridge=0.1), load(data))
    run = RunFolder(first / "new")
    attacked(run, HeavyBall(iterations=2))
    write_report(run, reveal=False)
    write_known(run, 0)
    write_json(run.path / "compare.json", as_json(run, [], 1.0))
    _, plan = plan_spec(first / "grid.toml")
    SweepFolder(first).fail(plan.runs[0], "for this test")
    written = {path for path in (*run.path.iterdir(), *(first / "runs").glob("*/*.json")) if path.suffix in KINDS}
    assert len(written) == 12
    for path in written:
        told = read_json(path) if path.suffix == ".json" else read_header(path).exhume
        assert type(told.get("schema")) is int, path.name
