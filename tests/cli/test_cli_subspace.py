import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

Exhume = Callable[..., subprocess.CompletedProcess[str]]
SPHERE = ("--data", "sphere", "--samples", "4", "--dim", "40", "--subspace", "3")


def trained(exhume: Exhume, out: Path, *options: object) -> Path:
    done = exhume("train", "two-layer", *SPHERE, "--width", "80", "--steps", "200", *options, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_the_first_layer_is_used_where_it_is_known(exhume: Exhume, tmp_path: Path) -> None:
    run = trained(exhume, tmp_path / "run", "--knows-first-layer")
    done = exhume("attack", run, "--iterations", "5", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["method"], summary["subspace_rank"]) == ("subspace", 3)
    assert "its change has rank 3" in done.stderr
    done = exhume("attack", run, "--method", "split-newton", "--iterations", "5", "--json")
    again = json.loads(done.stdout)
    assert (again["method"], again["subspace_rank"], again["subspace"]) == ("split-newton", None, None)


def test_a_subspace_is_read_from_a_file(exhume: Exhume, tmp_path: Path) -> None:
    run = trained(exhume, tmp_path / "run")
    save_file({"basis": torch.eye(40)[:7].contiguous()}, tmp_path / "basis.safetensors")
    done = exhume("attack", run, "--subspace", tmp_path / "basis.safetensors", "--iterations", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["subspace_rank"] == 7


def test_adam_is_told_in_one_line(exhume: Exhume, tmp_path: Path) -> None:
    run = trained(exhume, tmp_path / "run", "--knows-first-layer", "--method", "adam")
    done = exhume("attack", run, "--iterations", "3")
    assert done.returncode == 0, done.stderr
    assert "no rank that stands out" in done.stdout + done.stderr
    refused = exhume("attack", run, "--method", "subspace")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "such as Adam" in refused.stderr


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--method", "subspace"), "knows none"),
        (("--subspace", "first-layer"), "--knows-first-layer"),
        (("--subspace", "no-such-file"), "found no file no-such-file"),
    ],
)
def test_subspaces_that_cannot_be_had_are_refused_in_one_line(
    exhume: Exhume, tmp_path: Path, options: tuple[str, ...], found: str
) -> None:
    run = trained(exhume, tmp_path / "run")
    refused = exhume("attack", run, *options)
    assert refused.returncode in (1, 2)
    assert refused.stderr.count("\n") == 1
    assert found in refused.stderr


def test_the_width_that_is_enough_is_told_with_its_assumptions(exhume: Exhume) -> None:
    request = ("width", "--samples", 1, "--dim", 50, "--separation", 0.3)
    whole, inside = (exhume(*request, *more, "--json") for more in ((), ("--subspace", 2)))
    assert json.loads(inside.stdout)["width"] < json.loads(whole.stdout)["width"]
    assert json.loads(whole.stdout)["derived_here"] is True
    assert "It assumes that" in inside.stderr
    assert exhume(*request, "--subspace", 51).returncode == 2
