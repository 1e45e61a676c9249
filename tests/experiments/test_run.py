import json
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume import seeds
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running.prepare import prepare
from exhume.attacks.running.settings import AttackSettings
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.attacking import AttackedRun, attack_run
from exhume.experiments.run import EVALUATION_KEYS, RunFolder, check_new
from exhume.experiments.scoring import score_run
from exhume.reconstruction import Certificate, Outcome, Reconstruction
from exhume_papers.making.training_run import train_run
from exhume_papers.victims.random_features import RandomFeaturesConfig

SPHERE = DataConfig(name="sphere", samples=3, dim=8, seed=seeds.derive(0, "data"))
FACES = DataConfig(name="faces", samples=3, side=5)


def attacked(run: RunFolder, method: HeavyBall, watch: Any = None, **settings: Any) -> AttackedRun:
    return attack_run(run, prepare(run.observation(), AttackSettings(method, **settings)), watch)


def train(out: Path, data: DataConfig = SPHERE, **model: Any) -> dict[str, Any]:
    return train_run(out, data, RandomFeaturesConfig(**{"params": 60, **model}), load(data))


def found(m: int = 3, d: int = 8) -> Reconstruction:
    return Reconstruction(
        candidates=torch.randn(m, d, generator=torch.Generator().manual_seed(0)),
        coefficients=torch.ones(m, 1),
        method="heavy-ball",
        certificate=Certificate(Outcome.PARTIAL, 0.01, 3, ()),
        loss=0.5,
        iterations=2,
        passes=5.0,
        seconds=1.23456,
        peak_memory_mb=10.0,
        seed=0,
        settings={"step_size": None},
    )


TRACE = [
    {"iteration": 0.0, "loss": 1.0, "passes": 1.0, "seconds": 0.0},
    {"iteration": 1.0, "loss": 0.1 + 0.2, "passes": 3.0, "seconds": 0.0001},
    {"iteration": 2.0, "loss": 1e-300, "passes": 5.0, "seconds": 1.5, "radius": 0.25},
]


def test_a_trained_run_has_its_files_and_its_numbers(tmp_path: Path) -> None:
    summary = train(tmp_path / "deep" / "run")
    assert {path.name for path in (tmp_path / "deep" / "run").iterdir()} == {
        "config.json",
        "observation.safetensors",
        "truth.safetensors",
        "summary.json",
    }
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run"], "nothing temporary is left"
    assert {"p": 60, "d": 8, "n": 3, "ratio": 2.5, "activation": "relu", "schema": 1}.items() <= summary.items()
    assert RunFolder.existing(tmp_path / "deep" / "run").summary() == summary


def test_the_configuration_trains_the_same_run_again(tmp_path: Path) -> None:
    train(tmp_path / "a", activation="tanh", bias=0.3, seed=5)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    data = DataConfig.model_validate(config["data"])
    train_run(tmp_path / "b", data, RandomFeaturesConfig.model_validate(config["model"]), load(data))
    for name in ("observation.safetensors", "truth.safetensors", "config.json", "summary.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_observation_holds_neither_the_seed_of_the_data_nor_the_data(tmp_path: Path) -> None:
    train(tmp_path / "run")
    content = (tmp_path / "run" / "observation.safetensors").read_bytes()
    assert str(SPHERE.seed).encode() not in content
    assert b"sphere" not in content
    for row in RunFolder(tmp_path / "run").truth().inputs:
        assert row.numpy().tobytes() not in content


@pytest.mark.parametrize("problem", [RuntimeError("no"), KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize(
    "place", ["training.train_random_features", "training_run.save_observation", "training_run.write_json"]
)
def test_a_run_that_fails_on_the_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: BaseException, place: str
) -> None:
    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr(f"exhume_papers.making.{place}", fail)
    expected = ExhumeError if isinstance(problem, OSError) else type(problem)
    with pytest.raises(expected):
        train(tmp_path / "run", features="file")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(UsageError, match=r"expected a new folder .* found .*run already there"):
        train(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_weights_larger_than_the_memory_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match=r"expected weights that fit .* found p = 1,000,000,000,000,000"):
        train(tmp_path / "run", params=10**15)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [SPHERE, FACES])
def test_the_truth_comes_back_as_it_was(tmp_path: Path, data: DataConfig) -> None:
    train(tmp_path / "run", data)
    truth, original = RunFolder(tmp_path / "run").truth(), load(data)
    assert torch.equal(truth.inputs, original.inputs)
    assert torch.equal(truth.labels, original.labels)
    assert torch.equal(truth.class_index, original.class_index)
    assert (truth.class_names, truth.image_shape) == (original.class_names, original.image_shape)
    for field in ("mean", "std", "scale"):
        assert torch.equal(getattr(truth.preparation, field), getattr(original.preparation, field))
    assert truth.preparation.describe() == original.preparation.describe()
    assert truth.coefficients is not None
    assert len(truth.coefficients) == len(truth.inputs)


def test_the_kept_coefficients_are_those_of_the_weights(tmp_path: Path) -> None:
    train(tmp_path / "run", activation="tanh")
    run = RunFolder(tmp_path / "run")
    truth, observation = run.truth(), run.observation()
    assert truth.coefficients is not None
    rebuilt = truth.coefficients.float() @ observation.features(truth.inputs)
    torch.testing.assert_close(rebuilt, observation.weights[0], rtol=1e-4, atol=1e-5)


def test_an_attack_is_kept_with_its_trace(tmp_path: Path) -> None:
    train(tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert not (run.path / "reconstruction.safetensors").exists()
    summary = run.save_attack(found(), TRACE)
    assert (run.path / "reconstruction.safetensors").exists()
    assert run.summary() == summary
    assert {
        "method": "heavy-ball",
        "outcome": "partial",
        "seconds": 1.235,
        "samples_found": 3,
    }.items() <= summary.items()
    assert {"p", "d", "n", "ratio", "activation"} <= summary.keys()
    back = run.reconstruction()
    assert torch.equal(back.candidates, found().candidates)
    assert (back.certificate, back.seconds, back.settings) == (found().certificate, 1.23456, {"step_size": None})


def test_a_trace_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    train(tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert run.trace() == []
    run.save_attack(found(), TRACE)
    assert run.trace() == TRACE
    assert (run.path / "trace.csv").read_text().splitlines()[:2] == [
        "iteration,loss,passes,seconds,radius",
        "0,1.0,1.0,0.0,",
    ]


def test_scores_of_an_earlier_attack_are_dropped(tmp_path: Path) -> None:
    train(tmp_path / "run", FACES)
    run = RunFolder(tmp_path / "run")
    run.save_attack(found(d=25), TRACE)
    scores = score_run(run).summary()
    assert scores.keys() <= set(EVALUATION_KEYS), "a score that is not in the list would outlive its attack"
    assert scores.keys() <= run.update_summary({**scores, "report": "x"}).keys()
    assert run.save_attack(found(d=25), TRACE).keys().isdisjoint(EVALUATION_KEYS)


def test_an_attack_on_a_run_is_told_the_number_of_samples_only_as_far_as_it_needs(tmp_path: Path) -> None:
    train(tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    done = attacked(run, HeavyBall(iterations=2))
    assert done.summary["samples_found"] == 3
    assert not done.interrupted
    more = attacked(run, HeavyBall(iterations=2), samples=5)
    assert more.summary["samples_found"] == 5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "expected a run folder at .*, found none"),
        (lambda path: path.write_text("x"), "expected a run folder at .*, found none"),
        (lambda path: path.mkdir(), "expected observation.safetensors in .*, found none"),
    ],
    ids=["nothing", "a file", "an empty folder"],
)
def test_what_is_no_run_folder_is_refused(tmp_path: Path, make: Any, words: str) -> None:
    make(tmp_path / "run")
    with pytest.raises(ExhumeError, match=words):
        RunFolder.existing(tmp_path / "run")


def test_the_checkpoint_of_a_training_that_was_killed_at_the_very_end_goes_with_the_next_call(tmp_path: Path) -> None:
    whole, other = tmp_path / "whole", tmp_path / "other"
    for folder in (whole, other):
        folder.mkdir()
        folder.with_name(f".{folder.name}.training.safetensors").write_text("hours of work")
        (folder / ("observation.safetensors" if folder == whole else "notes.txt")).write_text("")
        with pytest.raises(UsageError, match="already there"):
            check_new(folder)
    assert [path.name for path in tmp_path.glob(".*")] == [".other.training.safetensors"], "not that of another folder"
