"""An attack reads the observation (and V, where it is a file) and nothing else of a run: never the truth, and never
the configuration, whose seed would give the data away."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from exhume.cli.app import main
from exhume.reconstruction import load_reconstruction

ATTACKS = {
    "seed": ("--method", "heavy-ball", "--iterations", "5", "--seed", "2"),
    "file": ("--method", "heavy-ball", "--iterations", "5", "--seed", "2"),
    "two-layer": ("--method", "heavy-ball", "--iterations", "5", "--seed", "2"),
    "resnet": ("--iterations", "5", "--seed", "2"),
}

# Runs the command line and writes every file that it opens to standard error. Python's own opens are audited;
# safetensors opens its files outside Python, so its two ways in are wrapped as well.
WATCHED = """
import json, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import safetensors, safetensors.torch
for module, name in ((safetensors, "safe_open"), (safetensors.torch, "load_file")):
    def watched(path, *args, original=getattr(module, name), **named):
        opened.append(str(path))
        return original(path, *args, **named)
    setattr(module, name, watched)
import exhume.files
exhume.files.replacing  # loaded before the attack, so that it is the attack's opens that are listed
from exhume.cli.app import main
sys.argv = ["exhume", *sys.argv[1:]]
try:
    main()
finally:
    print("OPENED " + json.dumps(opened), file=sys.stderr)
"""


def call(*arguments: str | Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["exhume", *map(str, arguments)])
        main()


@pytest.fixture(params=ATTACKS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(kind: str, tmp_path: Path) -> Path:
    sphere = ("--data", "sphere", "--dim", "20", "--samples", "4", "--ratio", "4")
    faces = ("--data", "faces", "--side", "5", "--samples", "2", "--ratio", "2", "--steps", "9")
    if kind in ("seed", "file"):
        call("train", "rf", *sphere, "--features", kind, "--out", tmp_path / "run")
    else:
        call("train", kind, *faces, "--out", tmp_path / "run")
    return tmp_path / "run"


def candidates(run: Path) -> torch.Tensor:
    return load_reconstruction(run / "reconstruction.safetensors").candidates


def test_without_truth_and_configuration_the_attack_finds_the_same(run: Path, kind: str) -> None:
    bare = Path(shutil.copytree(run, run.with_name("bare")))
    for name in ("truth.safetensors", "config.json", "summary.json"):
        (bare / name).unlink()
    call("attack", run, *ATTACKS[kind])
    call("attack", bare, *ATTACKS[kind])
    assert torch.equal(candidates(run), candidates(bare))
    assert {path.name for path in bare.iterdir()} - {"features.safetensors"} == {
        "observation.safetensors",
        "reconstruction.safetensors",
        "snapshots.safetensors",
        "summary.json",
        "trace.csv",
    }


def test_an_attack_opens_nothing_but_the_observation_before_it_is_done(run: Path, kind: str) -> None:
    call("attack", run, *ATTACKS[kind])
    expected = candidates(run)
    shutil.rmtree(run.with_name("watched"), ignore_errors=True)
    watched = Path(shutil.copytree(run, run.with_name("watched")))
    (watched / "reconstruction.safetensors").unlink()
    for name in ("truth.safetensors", "config.json"):
        (watched / name).unlink()
        os.mkfifo(watched / name)  # whoever opens a pipe that nobody writes to waits forever
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "attack", str(watched), *ATTACKS[kind]],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert torch.equal(candidates(watched), expected)
    opened = json.loads(done.stderr.partition("OPENED ")[2])
    names = [Path(name).name for name in opened if Path(name).parent == watched]
    first_written = next(index for index, name in enumerate(names) if name.endswith(".exhume.tmp"))
    features = ["features.safetensors"] if (run / "features.safetensors").exists() else []
    assert set(names[:first_written]) == {"observation.safetensors", *features}
    assert {"truth.safetensors", "config.json"}.isdisjoint(names)
