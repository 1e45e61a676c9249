"""Files that are missing, cut off, damaged or of the wrong shape: one line, exit code 1, nothing changed."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from exhume.cli.app import main

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of pictures with V in a file, attacked and evaluated."""
    run = tmp_path_factory.mktemp("runs") / "a"
    faces = ["--data", "faces", "--samples", "3", "--side", "5", "--params", "90", "--bias", "0.5"]
    for arguments in (
        ["train", "rf", *faces, "--features", "file", "--out", str(run)],
        ["attack", str(run), "--method", "heavy-ball", "--iterations", "2"],
        ["evaluate", str(run)],
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["exhume", *arguments])
            main()
    return run


@pytest.fixture
def run(whole_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_run, tmp_path / "run"))


def rewrite(file: str, change: Callable[[dict[str, Tensor], dict[str, Any]], object]) -> Damage:
    """Damage that keeps a valid safetensors file: other tensors, other metadata."""

    def damage(run: Path) -> None:
        with safe_open(run / file, framework="pt") as opened:
            meta = json.loads((opened.metadata() or {})["exhume"])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
        change(tensors, meta)
        save_file(tensors, run / file, metadata={"exhume": json.dumps(meta)})

    return damage


def with_tensor(file: str, name: str, make: Callable[[Tensor], Tensor]) -> Damage:
    return rewrite(file, lambda tensors, _: tensors.update({name: make(tensors[name]).contiguous()}))


def with_meta(file: str, **fields: object) -> Damage:
    return rewrite(file, lambda _, meta: meta.update(fields))


def without_meta(file: str, name: str) -> Damage:
    return rewrite(file, lambda _, meta: meta.pop(name))


def poisoned(value: float) -> Callable[[Tensor], Tensor]:
    def poison(tensor: Tensor) -> Tensor:
        tensor.flatten()[1] = value
        return tensor

    return poison


def cut_off(file: str) -> Damage:
    return lambda run: (run / file).write_bytes((run / file).read_bytes()[:-5])


def garbled(file: str) -> Damage:
    return lambda run: (run / file).write_bytes(bytes(range(256)) * 4)


def emptied(file: str) -> Damage:
    return lambda run: (run / file).write_bytes(b"")


def missing(file: str) -> Damage:
    return lambda run: (run / file).unlink()


def replaced_by(file: str, other: str) -> Damage:
    return lambda run: shutil.copy(run / other, run / file)


def a_folder_instead(file: str) -> Damage:
    def damage(run: Path) -> None:
        (run / file).unlink()
        (run / file).mkdir()

    return damage


OBSERVATION, FEATURES, TRUTH = "observation.safetensors", "features.safetensors", "truth.safetensors"
FOUND = "reconstruction.safetensors"

DAMAGES: dict[str, tuple[str, Damage]] = {
    **{
        f"{command} with {file} {kind.__name__}": (command, kind(file))
        for command, file in (("attack", OBSERVATION), ("attack", FEATURES), ("evaluate", FOUND), ("evaluate", TRUTH))
        for kind in (missing, cut_off, garbled, emptied, a_folder_instead)
    },
    "weights with NaN": ("attack", with_tensor(OBSERVATION, "weights", poisoned(float("nan")))),
    "weights with infinity": ("attack", with_tensor(OBSERVATION, "weights", poisoned(float("-inf")))),
    "weights that are all zero": ("attack", with_tensor(OBSERVATION, "weights", torch.zeros_like)),
    "weights that are too few": ("attack", with_tensor(OBSERVATION, "weights", lambda w: w[:, :-1])),
    "weights that are too many": ("attack", with_tensor(OBSERVATION, "weights", lambda w: torch.cat([w, w], 1))),
    "weights of one dimension": ("attack", with_tensor(OBSERVATION, "weights", lambda w: w[0])),
    "weights of no outputs": ("attack", with_tensor(OBSERVATION, "weights", lambda w: w[:0])),
    "weights that are whole numbers": ("attack", with_tensor(OBSERVATION, "weights", lambda w: w.long())),
    "no weights": ("attack", rewrite(OBSERVATION, lambda tensors, _: tensors.pop("weights"))),
    "a bias with NaN": ("attack", with_tensor(OBSERVATION, "bias", poisoned(float("nan")))),
    "a bias that is too short": ("attack", with_tensor(OBSERVATION, "bias", lambda b: b[:-1])),
    "an unknown activation": ("attack", with_meta(OBSERVATION, activation="swish")),
    "no activation": ("attack", without_meta(OBSERVATION, "activation")),
    "no rows": ("attack", without_meta(OBSERVATION, "rows")),
    "rows of another place": ("attack", with_meta(OBSERVATION, rows={"kind": "file", "name": "../run/x", "p": 9})),
    "an unknown knowledge": ("attack", with_meta(OBSERVATION, knowledge={"password": "x"})),
    "a negative number of samples": ("attack", with_meta(OBSERVATION, knowledge={"samples": -3})),
    "a norm of zero": ("attack", with_meta(OBSERVATION, knowledge={"samples": 3, "norm": 0.0})),
    "a later schema": ("attack", with_meta(OBSERVATION, schema=99)),
    "the truth as an observation": ("attack", replaced_by(OBSERVATION, TRUTH)),
    "features as an observation": ("attack", replaced_by(OBSERVATION, FEATURES)),
    "an observation as features": ("attack", replaced_by(FEATURES, OBSERVATION)),
    "a truth without its preparation": ("evaluate", without_meta(TRUTH, "standardise")),
    "candidates with NaN": ("evaluate", with_tensor(FOUND, "candidates", poisoned(float("nan")))),
    "no candidates": ("evaluate", rewrite(FOUND, lambda tensors, _: tensors.pop("candidates"))),
    "candidates of no certificate": ("evaluate", without_meta(FOUND, "certificate")),
    "an unknown outcome": ("evaluate", with_meta(FOUND, certificate={"outcome": "maybe"})),
    "the truth as a reconstruction": ("evaluate", replaced_by(FOUND, TRUTH)),
    "a summary cut off": ("evaluate", cut_off("summary.json")),
    "a summary that is a list": ("evaluate", lambda run: (run / "summary.json").write_text("[1]")),
    "a report of a damaged reconstruction": ("report", garbled(FOUND)),
    "a report of a damaged observation": ("report", cut_off(OBSERVATION)),
    "a report of a damaged trace": ("report", lambda run: (run / "trace.csv").write_text("iteration\nx\n")),
    "a gauge of a damaged observation": ("gauge", cut_off(OBSERVATION)),
    "a gauge of an observation without rows": ("gauge", without_meta(OBSERVATION, "rows")),
    "a list of a damaged summary": ("runs", garbled("summary.json")),
}


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def assert_refused(
    arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    capsys.readouterr()
    before = contents(folder)
    monkeypatch.setattr(sys, "argv", ["exhume", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    complaint = capsys.readouterr().err
    assert left.value.code == 1, complaint
    assert complaint.startswith("exhume: expected ")
    assert "found" in complaint
    assert complaint.count("\n") == 1, complaint
    assert "a fault:" not in complaint, "a foreseen problem has words of its own"
    assert contents(folder) == before
    return complaint


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_refused(
    name: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, damage = DAMAGES[name]
    damage(run)
    arguments = {
        "attack": ["attack", str(run), "--method", "heavy-ball", "--iterations", "2", "--held-out", "0.1"],
        "gauge": ["gauge", str(run / OBSERVATION), "--dim", "25"],
        "runs": ["runs", str(run.parent)],
    }
    complaint = assert_refused(arguments.get(command, [command, str(run)]), run.parent, monkeypatch, capsys)
    assert "Traceback" not in complaint


def test_a_run_without_its_summary_can_still_be_attacked_and_evaluated(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing("summary.json")(run)
    missing("config.json")(run)
    for command in ("attack", "evaluate"):
        limits = ["--method", "heavy-ball", "--iterations", "2"] if command == "attack" else []
        monkeypatch.setattr(sys, "argv", ["exhume", command, str(run), *limits, "--json"])
        main()
        assert json.loads(capsys.readouterr().out)["schema"] == 1


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (b"", "found 0 bytes"),
        (bytes(5000), "found 5000 bytes"),
        (b"\x06" + bytes(3071), "found 3072 bytes"),
        (b"\xff" + bytes(3072), "found 255 in record 0"),
    ],
    ids=["empty", "cut off", "one byte short", "a label that does not exist"],
)
def test_damaged_images_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], batch: bytes, words: str
) -> None:
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "data_batch_1.bin").write_bytes(batch)
    data = ["--data", "cifar10", "--data-dir", str(tmp_path / "data"), "--samples", "2", "--params", "9"]
    arguments = ["train", "rf", *data, "--out", str(tmp_path / "new")]
    assert words in assert_refused(arguments, tmp_path, monkeypatch, capsys)


def test_a_damaged_picture_in_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pictures").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, 400, dtype=np.uint8)
    (tmp_path / "pictures" / "a.png").write_bytes(noise.tobytes())
    arguments = ["train", "rf", "--data", str(tmp_path / "pictures"), "--samples", "1", "--params", "9"]
    assert "a.png" in assert_refused([*arguments, "--out", str(tmp_path / "new")], tmp_path, monkeypatch, capsys)
