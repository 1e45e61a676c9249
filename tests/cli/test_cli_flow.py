"""The commands in the order in which a user runs them, and the JSON that other programs read."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]

TRAINED = {"p": int, "d": int, "n": int, "ratio": float, "activation": str}
ATTACKED = {
    "method": str,
    "outcome": str,
    "loss": float,
    "held_out_loss": (float, NoneType),
    "samples_found": int,
    "iterations": int,
    "passes": float,
    "seconds": float,
    "peak_memory_mb": float,
    "seed": int,
}
EVALUATED = {
    "n": int,
    "ratio": float,
    "error": float,
    "signed_error": float,
    "chance_error": float,
    "recovered_fraction": float,
    "span_residual": float,
}
OUTCOMES = {"recovered", "partial", "spurious", "not_converged"}
PUBLISHED = ("--method", "heavy-ball")
SPHERE = ("train", "rf", "--data", "sphere", "--dim", "20", "--samples", "4", "--seed", "3")


def read_json(done: subprocess.CompletedProcess[str], keys: dict[str, Any]) -> dict[str, Any]:
    """The one JSON object on standard output, which has these keys with values of these types."""
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert len(done.stdout.splitlines()) == 1, "with --json everything for people goes to standard error"
    values = json.loads(done.stdout)
    assert isinstance(values, dict)
    for key, kind in keys.items():
        assert key in values, key
        assert isinstance(values[key], kind), (key, values[key])
        assert not isinstance(values[key], bool), key
    return values


def test_train_attack_evaluate_report_and_runs(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    trained = read_json(exhume(*SPHERE, "--ratio", 4, "--out", run, "--json"), TRAINED)
    assert (trained["p"], trained["d"], trained["n"], trained["ratio"]) == (320, 20, 4, 4.0)

    attacked = read_json(
        exhume("attack", run, *PUBLISHED, "--iterations", 30, "--seed", 7, "--json"), TRAINED | ATTACKED
    )
    assert attacked["outcome"] in OUTCOMES
    assert (attacked["iterations"], attacked["seed"], attacked["samples_found"]) == (30, 7, 4)
    lines = (run / "trace.csv").read_text().splitlines()
    assert len(lines) == 1 + 31, "one line per iteration, the start included, under a header"

    evaluated = read_json(exhume("evaluate", run, "--json"), TRAINED | ATTACKED | EVALUATED)
    assert 0 <= evaluated["error"] <= evaluated["signed_error"]
    assert 0 <= evaluated["recovered_fraction"] <= 1
    assert json.loads((run / "summary.json").read_text()) == evaluated

    reported = read_json(exhume("report", run, "--json"), {"report": str, **EVALUATED})
    assert Path(reported["report"]) == run / "report.html"
    assert "</html>" in (run / "report.html").read_text()

    listed = read_json(exhume("runs", run.parent, "--json"), {"runs": list})
    assert [line["run"] for line in listed["runs"]] == ["a"]
    assert listed["runs"][0]["error"] == evaluated["error"]
    assert not (run / "checkpoint.safetensors").exists(), "an attack that ended by itself leaves none"
    assert [path.name for path in tmp_path.rglob(".*")] == []


def test_without_json_the_words_are_on_standard_output(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "a"
    trained = exhume(*SPHERE, "--ratio", 4, "--out", run)
    assert "norm sqrt(d)" in trained.stdout or "radius sqrt(d)" in trained.stdout, "the norm of the rows is printed"
    attacked = exhume("attack", run, *PUBLISHED, "--iterations", 3)
    assert "heavy-ball" in attacked.stdout
    evaluated = exhume("evaluate", run)
    assert "error rho =" in evaluated.stdout
    assert "chance" in evaluated.stdout
    table = exhume("runs", tmp_path)
    assert "heavy-ball" in table.stdout
    for done in (trained, attacked, evaluated, table):
        assert (done.returncode, done.stderr) == (0, "")


def test_an_attack_again_drops_the_scores_of_the_one_before(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "a"
    exhume(*SPHERE, "--ratio", 4, "--out", run)
    exhume("attack", run, *PUBLISHED, "--iterations", 3)
    assert "error" in read_json(exhume("evaluate", run, "--json"), EVALUATED)
    assert "error" not in read_json(exhume("attack", run, *PUBLISHED, "--iterations", 4, "--json"), ATTACKED)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(exhume: Command, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        exhume(*SPHERE[:-1], seed, "--ratio", 4, "--out", tmp_path / name)
        exhume("attack", tmp_path / name, *PUBLISHED, "--iterations", 5)
    for file in ("observation.safetensors", "truth.safetensors"):
        contents = [(tmp_path / name / file).read_bytes() for name in "abc"]
        assert contents[0] == contents[1] != contents[2]
    found = [json.loads((tmp_path / name / "summary.json").read_text())["loss"] for name in "abc"]
    assert found[0] == found[1] != found[2]


def test_ratio_and_params_say_the_same_in_two_ways(exhume: Command, tmp_path: Path) -> None:
    by_ratio = read_json(exhume(*SPHERE, "--ratio", 2.5, "--out", tmp_path / "a", "--json"), TRAINED)
    by_params = read_json(exhume(*SPHERE, "--params", 200, "--out", tmp_path / "b", "--json"), TRAINED)
    assert by_ratio == by_params
    weights = [(tmp_path / name / "observation.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]


def test_features_in_a_file_give_the_same_attack_as_features_from_a_seed(exhume: Command, tmp_path: Path) -> None:
    losses = []
    for kind in ("seed", "file"):
        run = tmp_path / kind
        exhume(*SPHERE, "--ratio", 4, "--features", kind, "--out", run)
        assert (run / "features.safetensors").exists() == (kind == "file")
        losses.append(read_json(exhume("attack", run, *PUBLISHED, "--iterations", 5, "--json"), ATTACKED)["loss"])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("method", ["auto", "split-newton"])
def test_the_other_methods_answer_with_the_same_keys(exhume: Command, tmp_path: Path, method: str) -> None:
    exhume(*SPHERE, "--ratio", 4, "--out", tmp_path / "a")
    limits = ("--iterations", 20, "--method", method)
    found = read_json(exhume("attack", tmp_path / "a", *limits, "--json"), TRAINED | ATTACKED)
    assert found["outcome"] in OUTCOMES
    assert found["iterations"] <= 20
    read_json(exhume("evaluate", tmp_path / "a", "--json"), EVALUATED)


def test_an_attack_that_is_told_another_number_of_samples_looks_for_that_many(exhume: Command, tmp_path: Path) -> None:
    exhume(*SPHERE, "--ratio", 4, "--out", tmp_path / "a")
    found = read_json(
        exhume("attack", tmp_path / "a", *PUBLISHED, "--iterations", 2, "--samples", 6, "--json"), ATTACKED
    )
    assert found["samples_found"] == 6
    scored = read_json(exhume("evaluate", tmp_path / "a", "--json"), EVALUATED)
    assert scored["n"] == 4


def test_a_budget_ends_an_attack_and_counts_as_done(exhume: Command, tmp_path: Path) -> None:
    exhume(*SPHERE, "--ratio", 4, "--out", tmp_path / "a")
    limits = (*PUBLISHED, "--step", 1e-9, "--budget", "0.2s", "--memory", "1G", "--held-out", 0)
    found = read_json(exhume("attack", tmp_path / "a", *limits, "--json"), ATTACKED)
    assert 0 < found["seconds"] < 5
    assert found["held_out_loss"] is None


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    """A data folder with a few records of CIFAR-10's layout: classes 6 (frog), 9 (truck) and 0 (airplane)."""
    labels = np.array([6, 9, 0, 6, 9, 6], np.uint8)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "data_batch_1.bin").write_bytes(np.concatenate([labels[:, None], pixels], axis=1).tobytes())
    return folder.parent


def test_the_choice_of_images_reaches_the_configuration_and_the_words(
    exhume: Command, tmp_path: Path, cifar: Path
) -> None:
    choice = ("--classes", "truck,airplane", "--per-class", "2,1", "--standardise", "channels", "--norm", "keep")
    images = ("train", "rf", "--data", "cifar10", "--data-dir", cifar, "--samples", 3, "--side", 4)
    done = exhume(*images, *choice, "--params", 300, "--out", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "2 truck, 1 airplane" in done.stdout
    assert "3x4x4" in done.stdout
    assert "standardised per channel with the subset's mean" in done.stdout
    assert "rows keep their norm" in done.stdout
    data = json.loads((tmp_path / "a" / "config.json").read_text())["data"]
    assert (data["classes"], data["per_class"]) == (["truck", "airplane"], [2, 1])
    assert (data["standardise"], data["norm"], data["side"]) == ("channels", "keep", 4)
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["data"] in done.stdout


def test_images_are_brought_to_norm_sqrt_d_by_default_and_this_is_printed(
    exhume: Command, tmp_path: Path, cifar: Path
) -> None:
    done = exhume(
        *("train", "rf", "--data", "cifar10", "--data-dir", cifar, "--samples", 3, "--side", 4),
        *("--params", 300, "--out", tmp_path / "a"),
    )
    assert "rows brought to norm sqrt(d)" in done.stdout
    assert "2 frog, 1 truck" in done.stdout
    exhume("attack", tmp_path / "a", *PUBLISHED, "--iterations", 2)
    scored = read_json(exhume("evaluate", tmp_path / "a", "--json"), EVALUATED)
    assert {"mean_psnr", "mean_ssim"} <= scored.keys()


def test_the_model_reaches_the_configuration(exhume: Command, tmp_path: Path) -> None:
    model = ("--activation", "tanh", "--bias", 0.5, "--ridge", 0.01, "--dtype", "float64")
    assert exhume(*SPHERE, "--params", 50, *model, "--out", tmp_path / "a").returncode == 0
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    expected = {"params": 50, "activation": "tanh", "bias": 0.5, "fit": "ridge", "ridge": 0.01, "seed": 3}
    assert expected.items() <= config["model"].items()
    assert config["data"]["dtype"] == "float64"
    assert {"exhume", "python", "torch", "numpy"} <= config["versions"].keys()


def test_a_demo_ends_with_a_report_and_all_numbers(
    exhume: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exhume_papers.cli.demo.SAMPLES", 2)
    for name, fewer in {"SAMPLES": 10, "UNITS": 500, "STEPS": 100}.items():
        monkeypatch.setattr(f"exhume_papers.studies.ordinary_network.{name}", fewer)
    shown = read_json(exhume("demo", "--out", tmp_path / "demo", "--json"), TRAINED | ATTACKED | EVALUATED)
    assert Path(shown["report"]).is_file()
    assert (tmp_path / "demo" / "pairs.png").is_file()
    assert shown["error"] < shown["chance_error"]
