"""How long `exhume audit` takes for a two-layer model with p = 100,000 weights in its head, on d = 625 pixels.

    python benchmarks/audit_size.py [--params 100000] [--samples 20] [--way model|features] [--budget 2m] [--json]

Faces of 25 x 25 pixels, a fixed random first layer, ReLU, and a head fitted from zero in closed form, which is where
gradient descent on the square loss ends. The files are written to a temporary folder and audited by the command itself,
as a user would: with the records and as many control records to count with, but n not told. `model` names a factory of
the user's own, whose features the audit has to find out; `features` gives it the rows of V. The time is that of the
whole command, from its start to the written page; beside it stands its processor time, which is what it would take on
one core of a machine that does nothing else.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from exhume.data.config import DataConfig
from exhume.data.load import load

TARGET_SECONDS = 120.0
FACTORY = """
from torch import nn


def net():
    return nn.Sequential(nn.Linear({d}, {p}, bias=False), nn.ReLU(), nn.Linear({p}, 1, bias=False))
"""


def write_files(folder: Path, p: int, n: int) -> int:
    """Writes the model in both forms, the records and the control records; returns d."""
    faces = load(DataConfig(name="faces", samples=2 * n)).inputs
    d = faces.shape[1]
    first = torch.randn(p, d, generator=torch.Generator().manual_seed(1)) / d**0.5
    labels = torch.where(torch.arange(n) % 2 == 0, -1.0, 1.0)
    head = fitted_head((faces[:n] @ first.T).relu(), labels)
    save_file({"0.weight": first, "2.weight": head}, folder / "model.safetensors")
    save_file({"V": first}, folder / "V.safetensors")
    save_file({"head.weight": head}, folder / "head.safetensors")
    save_file({"inputs": faces[:n].reshape(n, 1, 25, 25).contiguous(), "labels": labels}, folder / "train.safetensors")
    save_file({"inputs": faces[n:].reshape(n, 1, 25, 25).contiguous()}, folder / "control.safetensors")
    (folder / "audited_nets.py").write_text(FACTORY.format(d=d, p=p))
    return d


def fitted_head(features: Tensor, labels: Tensor) -> Tensor:
    """The head of least norm that gives the labels: Φᵀ(ΦΦᵀ)⁻¹y."""
    exact = features.double()
    return (exact.T @ torch.linalg.solve(exact @ exact.T, labels.double())).float()[None]


WAYS = {
    "model": ("model.safetensors", "--model", "audited_nets:net", "--initial", "zero", "--image-shape", "flat"),
    "features": ("head.safetensors", "--features", "V.safetensors", "--activation", "relu"),
}
RECORDS = ("--truth", "train.safetensors", "--control", "control.safetensors", "--recipe", "gd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--params", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--way", choices=WAYS, default="model")
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        d = write_files(Path(name), options.params, options.samples)
        command = [sys.executable, "-m", "exhume", "audit", *WAYS[options.way], *RECORDS, "--budget", options.budget]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--out", "out", "--json"], cwd=name, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        size = (Path(name) / "out" / "report.html").stat().st_size
    attack = f"{found['method']}, {found['passes']:.0f} passes, {found['seconds']:.1f} s"
    print(f"p = {options.params:,}, d = {d}, n = {options.samples}, p/(dn) = {found['ratio']:.1f}: {options.way}")
    print(f"{found['sentence']} {attack}; error {found['error']:.2g}, control {found['control']['recovered']} back")
    verdict = "within" if seconds <= TARGET_SECONDS else "NOT within"
    processor = used.ru_utime + used.ru_stime
    print(
        f"{seconds:.1f} s in all ({processor:.1f} s of processor time, {used.ru_maxrss / 1e6:.1f} GB), "
        f"page of {size / 1e3:.0f} kB: {verdict} {TARGET_SECONDS:.0f} s"
    )
    if options.json:
        kept = {key: found[key] for key in ("verdict", "error", "passes", "ratio")}
        print(json.dumps({"seconds": seconds, "processor_seconds": processor, **kept}))


if __name__ == "__main__":
    main()
