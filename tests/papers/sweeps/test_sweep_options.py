"""Everything that `exhume train` and `exhume attack` can be asked for, in a sweep that is run."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from exhume_papers.sweeps.engines import HereEngine
from exhume_papers.sweeps.listing import Condition, list_runs, select, with_settings
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweeping import Swept, run_sweep

GLM = {"kind": "glm", "data": "sphere", "dim": 6, "samples": 3, "loss": "square", "dtype": "float64"}
SPHERE = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2, "ratio": 4}
FACES = {"kind": "rf", "data": "faces", "samples": 2, "side": 5, "ratio": 2}


def swept(out: Path, victim: dict[str, Any], *attacks: dict[str, Any], keep: Any = "all") -> Swept:
    plan = Sweep(victims=(victim,), attacks=attacks).plan()
    return run_sweep(plan, out, HereEngine(out), keep=keep)


def table(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("keep", ["all", "results"])
def test_each_missing_sample_of_a_generalised_linear_model_is_found(tmp_path: Path, keep: str) -> None:
    ended = swept(tmp_path, GLM, {"method": "informed", "missing": [0, 2]}, keep=keep)
    assert (ended.done, ended.failed) == (2, 0), ended.rows
    lines = table(tmp_path)
    assert [(line["victim"], line["method"], line["attack.missing"]) for line in lines] == [
        ("glm", "informed", "0"),
        ("glm", "informed", "2"),
    ]
    assert all(float(line["error"]) < 1e-6 and line["samples_found"] == "1" for line in lines)
    told = with_settings(tmp_path, list_runs(tmp_path))
    assert select(told, [Condition.parse("attack.missing=2")]).keys() == {lines[1]["run"]}
    assert not list(tmp_path.glob("victims/*/known.safetensors")), "an attack must not write to the victim"


def test_a_pool_a_seed_and_a_subspace_of_a_file_are_told_in_the_table_and_of_each_run(tmp_path: Path) -> None:
    path = tmp_path / "basis.safetensors"
    save_file({"basis": torch.eye(6)[:4].contiguous()}, path)
    ball = {"method": "heavy-ball", "iterations": 3}
    ended = swept(tmp_path / "out", SPHERE, {**ball, "pool": 2, "seed": 7}, {**ball, "subspace": str(path)})
    assert (ended.done, ended.failed) == (2, 0), ended.rows
    pooled, inside = table(tmp_path / "out")
    assert (pooled["attack.pool"], pooled["pooled_runs"], pooled["iterations"]) == ("2", "2", "6")
    assert (pooled["seed"], pooled["attack.seed"]) == ("0", "7")
    assert (inside["attack.subspace"], inside["method"], inside["pooled_runs"]) == (path.name, "subspace", "")
    told = with_settings(tmp_path / "out", list_runs(tmp_path / "out"))
    assert (told[pooled["run"]]["attack.pool"], told[pooled["run"]]["attack.seed"]) == (2, 7)
    assert told[inside["run"]]["attack.subspace"] == str(path)


def test_a_prior_on_images_has_its_own_results_in_the_table(tmp_path: Path) -> None:
    ended = swept(tmp_path, FACES, {"iterations": 2}, {"iterations": 2, "prior": "image"})
    assert (ended.done, ended.failed) == (2, 0), ended.rows
    plain, prior = table(tmp_path)
    assert (plain["method"], prior["method"]) == ("split-newton", "image-prior")
    assert (plain["attack.prior"], prior["attack.prior"]) == ("", "image")
    assert "low_resolution_cosine" in prior
    summary = json.loads((tmp_path / "runs" / prior["run"] / "summary.json").read_text())
    assert summary["prior"] == "image (1/f)"


def test_columns_of_priors_and_pools_are_there_only_where_they_are_asked_for(tmp_path: Path) -> None:
    swept(tmp_path, SPHERE, {"method": "heavy-ball", "iterations": 3})
    assert table(tmp_path)[0].keys().isdisjoint({"pooled_runs", "low_resolution_cosine"})


def test_a_run_that_is_asked_for_in_other_words_is_not_run_again(tmp_path: Path) -> None:
    first = swept(tmp_path, SPHERE, {"iterations": 2, "budget": "90s"})
    again = swept(tmp_path, SPHERE, {"method": "split-newton", "iterations": 2, "budget": 90.0, "seed": 0})
    assert (again.done, again.work_seconds) == (1, 0)
    assert again.rows[0]["run"] == first.rows[0]["run"]
