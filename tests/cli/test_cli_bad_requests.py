"""Requests that cannot be met: one line, the right exit code, and nothing left behind or changed."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from exhume.cli.app import main

# {new}: a run folder that may be made. {run}: one that was trained. {file}: a regular file. {data}: six CIFAR-10 images
SPHERE = "train rf --data sphere --dim 10 --samples 3 --out {new}"
FACES = "train rf --data faces --params 10 --out {new}"
CIFAR = "train rf --data cifar10 --data-dir {data} --side 4 --params 10 --out {new}"

WRONG_USAGE = [
    # the line itself
    "nonsense",
    "train",
    "data",
    "train resnet --out {new}",
    "attack",
    "attack {run} --nonsense 1",
    "attack {run} {run}",
    "evaluate {run} --reveal",
    "train rf --data sphere --dim 10 --samples 3 --ratio 2",
    "train rf --data sphere --dim 10 --ratio 2 --out {new}",
    "train rf --dim 10 --samples 3 --ratio 2 --out {new}",
    # p
    SPHERE,
    SPHERE + " --ratio 2 --params 60",
    SPHERE + " --params 0",
    SPHERE + " --params -5",
    SPHERE + " --params 1.5",
    SPHERE + " --ratio -1",
    SPHERE + " --ratio 0",
    SPHERE + " --ratio nan",
    SPHERE + " --ratio inf",
    SPHERE + " --ratio abc",
    SPHERE + " --ratio 0.001",
    # n
    "train rf --data sphere --dim 10 --samples 0 --ratio 2 --out {new}",
    "train rf --data sphere --dim 10 --samples -1 --ratio 2 --out {new}",
    "train rf --data sphere --dim 10 --samples many --ratio 2 --out {new}",
    FACES + " --samples 101",
    CIFAR + " --samples 7",
    CIFAR + " --samples 4 --per-class 4,0",
    # the sphere
    "train rf --data sphere --samples 3 --ratio 2 --out {new}",
    "train rf --data sphere --dim 0 --samples 3 --ratio 2 --out {new}",
    SPHERE + " --ratio 2 --subspace 11",
    SPHERE + " --ratio 2 --subspace 0",
    SPHERE + " --ratio 2 --labels cubic",
    SPHERE + " --ratio 2 --noise -1",
    SPHERE + " --ratio 2 --noise nan",
    SPHERE + " --ratio 2 --classes frog,truck",
    SPHERE + " --ratio 2 --side 4",
    SPHERE + " --ratio 2 --norm keep",
    # images
    "train rf --data mnist --samples 3 --ratio 2 --out {new}",
    "train rf --data {file} --samples 3 --ratio 2 --out {new}",
    "train rf --data '' --samples 3 --ratio 2 --out {new}",
    FACES + " --samples 3 --classes frog,truck",
    FACES + " --samples 3 --side 4",
    FACES + " --samples 3 --side 0",
    FACES + " --samples 3 --dim 10",
    FACES + " --samples 3 --standardise cifar10-split",
    CIFAR + " --samples 2 --classes frog,unicorn",
    CIFAR + " --samples 2 --classes frog,frog",
    CIFAR + " --samples 2 --classes frog,10",
    CIFAR + " --samples 2 --classes frog,,truck",
    CIFAR + " --samples 2 --per-class 1,x",
    CIFAR + " --samples 2 --per-class 1,2",
    CIFAR + " --samples 2 --per-class 2",
    CIFAR + " --samples 2 --standardise twice",
    CIFAR + " --samples 2 --norm one",
    # the model
    SPHERE + " --ratio 2 --activation swish",
    SPHERE + " --ratio 2 --fit best",
    SPHERE + " --ratio 2 --fit ridge",
    SPHERE + " --ratio 2 --fit logistic",
    SPHERE + " --ratio 2 --ridge -1",
    SPHERE + " --ratio 2 --ridge 0",
    SPHERE + " --ratio 2 --ridge nan",
    SPHERE + " --ratio 2 --bias -1",
    SPHERE + " --ratio 2 --bias nan",
    SPHERE + " --ratio 2 --steps 0",
    SPHERE + " --ratio 2 --labels sign --fit logistic --steps 9 --step-size -1",
    SPHERE + " --ratio 2 --features cloud",
    SPHERE + " --ratio 2 --dtype float16",
    SPHERE + " --ratio 2 --seed -1",
    SPHERE + " --ratio 2 --seed abc",
    # where it goes
    "train rf --data sphere --dim 10 --samples 3 --ratio 2 --out {run}",
    "train rf --data sphere --dim 10 --samples 3 --ratio 2 --out {file}",
    "train rf --data sphere --dim 10 --samples 3 --ratio 2 --out ''",
    "demo --out {run}",
    # the attack
    "attack {run} --method magic",
    "attack {run} --samples 0",
    "attack {run} --samples -1",
    "attack {run} --samples abc",
    "attack {run} --samples 1.5",
    "attack {run} --samples ²",
    "attack {run} --samples " + "9" * 5000,
    "attack {run} --iterations 0",
    "attack {run} --iterations abc",
    "attack {run} --budget abc",
    "attack {run} --budget 0",
    "attack {run} --budget -5s",
    "attack {run} --budget ''",
    "attack {run} --budget 5y",
    "attack {run} --memory x",
    "attack {run} --memory 0",
    "attack {run} --memory ''",
    "attack {run} --memory 8Q",
    "attack {run} --held-out 1.5",
    "attack {run} --held-out 1",
    "attack {run} --held-out -0.1",
    "attack {run} --held-out nan",
    "attack {run} --step 1",
    "attack {run} --inactive-slope 0.02",
    "attack {run} --method heavy-ball --step 0",
    "attack {run} --method heavy-ball --step nan",
    "attack {run} --method heavy-ball --iterations 0",
    "attack {run} --dtype float16",
    "attack {run} --device nope",
    "attack {run} --device meta",
    "attack {run} --seed -1",
    # the rest
    "gauge",
    "gauge {folder} --dim 10",
    "gauge --params 100",
    "gauge --dim 100",
    "gauge --params 0 --dim 10",
    "gauge --params 100 --dim 0",
    "gauge --params 100 --dim 10 --samples 0",
    "gauge --params many --dim 10",
    "data fetch",
    "data fetch mnist",
    "data fetch cifar10 --data-dir {new} --source ftp://127.0.0.1/archive",
]

COULD_NOT = [
    "train rf --data sphere --dim 10 --samples 3 --ratio 2 --out {file}/run",
    "train rf --data sphere --dim 10 --samples 3 --ratio 2 --out {file}/deep/run",
    "train rf --data sphere --dim 10 --samples 3 --ratio 2 --features file --out {file}/run",
    "train rf --data sphere --dim 10 --samples 3 --ratio 2 --out {folder}/" + "x" * 300,
    "train rf --data cifar10 --data-dir {new} --samples 2 --ratio 2 --out {new}",
    "train rf --data tiny-imagenet --data-dir {new} --samples 2 --ratio 2 --out {new}",
    SPHERE + " --params 1000000000000000000",
    SPHERE + " --ratio 2 --bias 1e300",
    "attack {new}",
    "attack {file}",
    "attack {folder}",
    "attack {run} --method heavy-ball --samples 99999999999",
    "evaluate {new}",
    "evaluate {file}",
    "evaluate {run}",
    "report {new}",
    "report {run}",
    "runs {new}",
    "runs {file}",
    "gauge {new} --dim 10",
    "gauge {file} --dim 10",
    "demo --out {file}/demo",
    "data fetch cifar10 --data-dir {file}/data --source http://127.0.0.1:1/archive",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a trained run, a regular file and a small CIFAR-10; requests that fail must leave it as it is."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "file").write_text("not a run")
    labels = np.array([6, 9, 0, 6, 9, 6], np.uint8)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    batches = folder / "data" / "cifar-10-batches-bin"
    batches.mkdir(parents=True)
    (batches / "data_batch_1.bin").write_bytes(np.concatenate([labels[:, None], pixels], axis=1).tobytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["exhume", *shlex.split(f"{SPHERE} --ratio 2".format(new=folder / "run"))])
        main()
    yield folder
    shutil.rmtree(folder)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def refuse(
    line: str, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    capsys.readouterr()
    before = contents(world)
    places = {name: str(world / name) for name in ("new", "run", "file", "data")} | {"folder": str(world)}
    monkeypatch.chdir(world)
    monkeypatch.setattr(sys, "argv", ["exhume", *(part.format(**places) for part in shlex.split(line))])
    with pytest.raises(SystemExit) as left:
        main()
    complaint = capsys.readouterr().err
    assert left.value.code == code, complaint
    assert complaint.startswith("exhume: ")
    assert complaint.endswith("\n")
    assert complaint.count("\n") == 1, complaint
    assert "a fault:" not in complaint, "a foreseen problem has words of its own"
    # typer's own complaints point to the help instead
    assert ("expected" in complaint and "found" in complaint) or "(see 'exhume" in complaint
    assert contents(world) == before


@pytest.mark.parametrize("line", WRONG_USAGE, ids=lambda line: line[:120])
def test_wrong_usage_is_refused_with_exit_code_2(
    line: str, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(line, world, monkeypatch, capsys, 2)


@pytest.mark.parametrize("line", COULD_NOT, ids=lambda line: line[:120])
def test_what_cannot_be_done_ends_with_exit_code_1(
    line: str, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(line, world, monkeypatch, capsys, 1)


def test_words_about_a_request_name_what_was_given(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table above cannot see whether a line is about the right thing; a sample of them is."""
    for line, words in {
        SPHERE + " --ratio 2 --activation swish": ("relu", "'swish'"),
        CIFAR + " --samples 2 --classes frog,unicorn": ("frog", "'unicorn'"),
        FACES + " --samples 101": ("100", "101"),
        "attack {run} --budget 5y": ("90s", "'5y'"),
        "attack {run} --dtype float16": ("float32", "'float16'"),
        "train rf --data mnist --samples 3 --ratio 2 --out {new}": ("cifar10", "'mnist'"),
        SPHERE + " --ratio 2 --params 60": ("--ratio and --params", "both"),
    }.items():
        monkeypatch.setattr(
            sys, "argv", ["exhume", *shlex.split(line.format_map({k: world / k for k in ("new", "run", "data")}))]
        )
        with pytest.raises(SystemExit):
            main()
        expected, _, found = capsys.readouterr().err.partition("found")
        assert words[0] in expected
        assert words[1] in found
