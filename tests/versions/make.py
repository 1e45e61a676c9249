"""Writes one small example of every file that exhume writes: python tests/versions/make.py tests/versions/vN.

To be run with the first version that writes a new layout, and kept: `test_versions.py` reads them ever after. The
folder v1 was made by version 0.1.0.
"""

import contextlib
import io
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from exhume.attacks.prior.spectrum import FrequencySpectrum, save_spectrum
from exhume.cli.app import main

SPEC = """seeds = 1
[[victim]]
kind = "rf"
data = "sphere"
dim = 3
samples = 2
ratio = 4
[[attack]]
method = "heavy-ball"
iterations = 3
"""
SUFFIXES = (".json", ".safetensors", ".csv")


def call(*arguments: object) -> None:
    sys.argv = ["exhume", *map(str, arguments)]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as left:
            if left.code:
                raise RuntimeError(" ".join(sys.argv)) from left


def make(folder: Path) -> None:
    photos = folder / "photos"
    photos.mkdir(parents=True)
    stream = np.random.default_rng(0)
    for number in range(2):
        Image.fromarray(stream.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(photos / f"{number}.png")
    images = ("--data", "photos", "--samples", "2", "--params", "60")
    short = ("--method", "heavy-ball", "--iterations", "3")
    with contextlib.chdir(folder):
        call("train", "rf", *images, "--features", "file", "--ridge", "0.1", "--out", "run")
        call("attack", "run", *short)
        call("evaluate", "run")
        call("report", "run")
        call("known", "run")
        call("compare", "run", "--attacks", "heavy-ball", "--budget", "1s")
        shutil.copytree("run", "stopped")
        call("attack", "stopped", "--method", "heavy-ball", "--iterations", "4", "--budget", "0.000001s")
        call("train", "two-layer", *images[:4], "--width", "9", "--steps", "3", "--initial", "seed", "--out", "network")
        Path("grid.toml").write_text(SPEC)
        call("sweep", "grid.toml", "--engine", "here")
        save_spectrum(FrequencySpectrum([[1.0, 0.5, 0.25]], "made up"), Path("spectrum.json"))


def keep(made: Path, out: Path) -> None:
    """What later versions have to read: the run, the checkpoint of a stopped attack, a network, a sweep."""
    for name in ("run", "network", "grid"):
        for path in sorted(made.glob(f"{name}/**/*")):
            if path.suffix in SUFFIXES:
                target = out / path.relative_to(made)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    shutil.copyfile(made / "stopped" / "checkpoint.safetensors", out / "checkpoint.safetensors")
    for name in ("spectrum.json", "grid.toml"):
        shutil.copyfile(made / name, out / name)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        make(Path(temporary))
        keep(Path(temporary), target)
