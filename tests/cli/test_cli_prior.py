"""`exhume attack --prior image`, on small faces that ship with scikit-image."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

Command = Callable[..., subprocess.CompletedProcess[str]]


def train(exhume: Command, run: Path) -> None:
    done = exhume("train", "rf", "--data", "faces", "--side", 5, "--samples", 3, "--ratio", 2, "--out", run)
    assert done.returncode == 0, done.stderr


def test_the_summary_says_which_prior_and_which_resolution(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "a"
    train(exhume, run)
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (5, 5, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    measured = exhume("data", "spectrum", tmp_path, "--side", 5, "--out", tmp_path / "spectrum.json", "--grey")
    assert "the spectrum of 3 images" in measured.stderr + measured.stdout
    known = exhume("attack", run, "--prior", "image", "--spectrum", tmp_path / "spectrum.json", "--iterations", 2)
    assert known.returncode == 0, known.stderr
    attacked = exhume("attack", run, "--prior", "image", "--spectrum", tmp_path, "--iterations", 20, "--json")
    assert attacked.returncode == 0, attacked.stderr
    summary = json.loads(attacked.stdout)
    assert summary["method"] == "image-prior"
    assert summary["prior"] == f"image ({tmp_path.name})"
    resolution = summary["resolution"]
    if resolution is not None:
        assert f"trusted to {resolution['side']}x{resolution['side']}" in attacked.stderr
        evaluated = json.loads(exhume("evaluate", run, "--json").stdout)
        assert 0 <= evaluated["low_resolution_cosine"] <= 1.0001
        assert 0 <= evaluated["low_resolution_recovered"] <= 1


def test_a_prior_may_be_one_on_the_directions_of_a_subspace(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "a"
    train(exhume, run)
    span = tmp_path / "span.safetensors"
    save_file({"basis": torch.randn(25, 6, generator=torch.Generator().manual_seed(0))}, span)
    attacked = exhume("attack", run, "--subspace", span, "--prior", "image", "--iterations", 5, "--json")
    assert attacked.returncode == 0, attacked.stderr
    summary = json.loads(attacked.stdout)
    assert (summary["method"], summary["subspace_rank"]) == ("image-prior", 6)
    assert summary["resolution"] is None or summary["resolution"]["of"] == 6
    assert exhume("evaluate", run).returncode == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--prior", "video"), "expected a prior out of none, image"),
        (("--spectrum", "x"), "expected --spectrum with --prior image"),
        (("--resolution", "9"), "expected --resolution with --prior image"),
        (("--prior", "image", "--resolution", "0"), "expected a resolution of at least 1"),
        (("--prior", "image", "--subspace", "moments"), "found one from moments"),
        (("--prior", "image", "--method", "heavy-ball"), "expected --prior image with --method split-newton"),
        (("--prior", "image", "--spectrum", "nowhere"), "found nothing at nowhere"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    exhume: Command, tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    run = tmp_path / "a"
    train(exhume, run)
    refused = exhume("attack", run, *options)
    assert refused.returncode == 2
    assert complaint in refused.stderr


def test_data_that_are_no_images_have_no_prior(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "a"
    sphere = ("train", "rf", "--data", "sphere", "--dim", 10, "--samples", 3, "--ratio", 2, "--out", run)
    assert exhume(*sphere).returncode == 0
    refused = exhume("attack", run, "--prior", "image")
    assert refused.returncode == 2
    assert "observation of images" in refused.stderr
