"""The files that are mutated: one small example of everything that exhume reads, made by exhume itself."""

import contextlib
import io
import json
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from fuzz_published import make_published
from fuzz_training import stop_half_way
from PIL import Image
from safetensors.torch import save_file

from exhume.attacks.prior.spectrum import FrequencySpectrum, save_spectrum
from exhume.cli.app import main

SPEC = """seeds = 2
keep = "all"

[[victim]]
kind = "rf"
data = "sphere"
dim = 3
samples = 2
ratio = [2, 4.5]
activation = "tanh"

[[victim]]
kind = "two-layer"
data = "sphere"
dim = 3
samples = 2
width = 6
steps = 3
defence = ["none", "int8"]

[[attack]]
method = "heavy-ball"
iterations = 2
step = 0.1
held-out = 0.1
"""
SMALL_SPEC = """seeds = 1
[[victim]]
kind = "rf"
data = "sphere"
dim = 3
samples = 2
ratio = 4
[[attack]]
method = "heavy-ball"
iterations = 2
"""
COMMANDS = (
    ["gauge", "--params", "6000", "--dim", "100", "--samples", "20", "--json"],
    ["gauge", "{work}/weights.safetensors", "--dim", "3", "--head", "fc"],
    ["width", "--samples", "10", "--dim", "100", "--separation", "0.5"],
    ["runs", "{work}/runs", "--where", "ratio>2", "--columns", "n,d,p", "--json"],
    ["runs", "{work}/runs", "--by", "n,method", "--value", "error"],
    ["runs", "{work}/runs", "--compare"],
    ["report", "{work}/runs/rf", "--json"],
    ["evaluate", "{work}/runs/rf", "--json"],
    ["known", "{work}/runs/rf", "--missing", "1", "--json"],
    ["attack", "{work}/runs/rf", "--method", "heavy-ball", "--iterations", "2", "--budget", "0.2s", "--memory", "1G"],
    ["attack", "{work}/runs/rf", "--iterations", "2", "--budget", "0.2s", "--samples", "2", "--dtype", "float64"],
    ["attack", "{work}/runs/rf", "--subspace", "{work}/basis.safetensors", "--budget", "0.2s", "--iterations", "2"],
    ["rank", "{work}/head.safetensors", "--candidates", "{work}/embeddings.safetensors", "--out", "{work}/ranked"],
    ["sweep", "{work}/spec.toml", "--check", "--json"],
    ["train", "glm", "--data", "sphere", "--dim", "3", "--samples", "2", "--out", "{work}/new"],
    ["train", "rf", "--data", "sphere", "--dim", "3", "--samples", "2", "--params", "9", "--out", "{work}/new"],
    ["count", "{work}/runs/rf", "--from", "2", "--to", "3", "--iterations", "2", "--budget", "0.2s"],
    ["bench", "--out", "{work}/bench", "--success", "x"],
    ["reproduce", "nothing", "--scale", "smoke"],
    ["compare", "{work}/runs/rf", "--attacks", "heavy-ball", "--budget", "0.2s"],
    [
        *("audit", "{work}/weights.safetensors", "--features", "{work}/V.safetensors", "--activation", "relu"),
        *("--samples", "2", "--budget", "0.2s", "--out", "{work}/audit"),
    ],
)


def call(*arguments: str | Path) -> None:
    """One command of exhume in this process; what it prints is dropped."""
    sys.argv = ["exhume", *map(str, arguments)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            main()
        except SystemExit as left:
            if left.code:
                raise RuntimeError(f"{sys.argv}: {told.getvalue()}") from left


def make_corpus(folder: Path) -> None:
    """Fills a new folder. Everything follows from fixed seeds."""
    folder.mkdir(parents=True)
    _make_images(folder)
    _make_tensors(folder)
    make_published(folder / "published")
    (folder / "spec.toml").write_text(SPEC)
    (folder / "small.toml").write_text(SMALL_SPEC)
    save_spectrum(FrequencySpectrum([[1.0, 0.5, 0.25]], "made up"), folder / "spectrum.json")
    _make_runs(folder)
    stop_half_way(folder / "training.safetensors", folder / "training-first.safetensors")
    _make_archives(folder)
    (folder / "commands").mkdir()
    for number, command in enumerate(COMMANDS):
        (folder / "commands" / f"{number}.json").write_text(json.dumps(command))


def _make_runs(folder: Path) -> None:
    runs = folder / "runs"
    sphere = ("--data", "sphere", "--dim", "3", "--samples", "2")
    images = ("--data", folder / "data" / "photos", "--samples", "2", "--side", "4")
    short = ("--method", "heavy-ball", "--iterations", "3")
    call("train", "rf", *sphere, "--params", "24", "--ridge", "0.1", "--out", runs / "rf")
    call("train", "rf", *sphere, "--params", "24", "--features", "file", "--bias", "0.1", "--out", runs / "file")
    call("train", "rf", *images, "--params", "40", "--out", runs / "images")
    two_layer = ("train", "two-layer", *sphere, "--width", "12", "--steps", "5")
    call(*two_layer, "--initial", "seed", "--out", runs / "two-layer")
    call(*two_layer, "--features-at", "midpoint", "--out", runs / "midpoint")
    call("train", "resnet", *images, "--width", "1", "--kernel", "3", "--steps", "2", "--out", runs / "resnet")
    for name in ("rf", "images"):
        call("attack", runs / name, *short)
        call("evaluate", runs / name)
        call("report", runs / name)
    call("known", runs / "rf")
    call("sweep", folder / "small.toml", "--engine", "here")
    shutil.copytree(runs / "rf", folder / "stopped")
    call("attack", folder / "stopped", "--iterations", "4", "--budget", "0.000001s")
    if not (folder / "stopped" / "checkpoint.safetensors").exists():
        raise RuntimeError("expected a checkpoint of the attack that was stopped, found none")


def _make_images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    photos = folder / "data" / "photos"
    photos.mkdir(parents=True)
    for number in range(2):
        Image.fromarray(np.roll(pixels, number, axis=0)).save(photos / f"{number}.png")
    several = folder / "data" / "several"
    several.mkdir()
    for suffix in ("png", "jpg", "gif", "bmp", "webp", "tif"):
        Image.fromarray(pixels).save(several / f"a.{suffix}")
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(several / "gray16.png")
    cifar = folder / "data" / "cifar-10-batches-bin"
    cifar.mkdir()
    records = np.random.default_rng(1).integers(0, 256, (4, 3073), dtype=np.uint8)
    records[:, 0] = (6, 9, 6, 9)
    (cifar / "data_batch_1.bin").write_bytes(records.tobytes())
    names = "airplane automobile bird cat deer dog frog horse ship truck"
    (cifar / "batches.meta.txt").write_text("\n".join(names.split()) + "\n")


def _make_tensors(folder: Path) -> None:
    stream = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=stream)

    save_file({"weights": drawn(24)}, folder / "weights.safetensors")
    save_file({"weights": drawn(24)}, folder / "initial.safetensors")
    save_file({"inputs": drawn(2, 3)}, folder / "control.safetensors")
    save_file({"fc.weight": drawn(1, 24), "fc.bias": drawn(1)}, folder / "layers.safetensors")
    save_file({"V": drawn(24, 3), "b": drawn(24)}, folder / "V.safetensors")
    save_file({"weight": drawn(2, 4), "bias": drawn(2)}, folder / "head.safetensors")
    save_file({"embeddings": drawn(3, 4), "member": torch.tensor([1, 0, 1])}, folder / "embeddings.safetensors")
    save_file({"basis": drawn(3, 2)}, folder / "basis.safetensors")
    save_file({"inputs": drawn(2, 3), "labels": torch.tensor([0.0, 1.0])}, folder / "rows.safetensors")
    torch.save({"state_dict": {"module.fc.weight": drawn(1, 24), "module.fc.bias": drawn(1)}}, folder / "weights.pt")


def _make_archives(folder: Path) -> None:
    with tarfile.open(folder / "photos.tar.gz", "w:gz") as archive:
        archive.add(folder / "data" / "photos", "photos")
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive_:
        for path in sorted((folder / "data" / "photos").iterdir()):
            archive_.write(path, f"photos/{path.name}")
