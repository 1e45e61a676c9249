"""Linear probes from the command line: train a head alone, attack through the extractor, rank records."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from exhume.data.config import DataConfig
from exhume.data.load import load
from published_files import save_skops

Command = Callable[..., subprocess.CompletedProcess[str]]
SPEC = "users_probe_nets:wide"
USERS = """
from torch import nn

def wide():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 300), nn.GELU(), nn.Linear(300, 1))

def small():
    return nn.Sequential(nn.Linear(6, 90), nn.GELU(), nn.Linear(90, 1))
"""


@pytest.fixture(autouse=True)
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "users_probe_nets.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("users_probe_nets", None)


def summary_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    values = json.loads(done.stdout)
    assert isinstance(values, dict)
    return values


def write_faces(folder: Path, first: int, last: int) -> None:
    folder.mkdir()
    faces = load(DataConfig.parse(name="faces", samples=100, side=5, standardise="none", norm="keep")).inputs
    for index in range(first, last):
        pixels = (faces[index].reshape(5, 5) * 65535).round().numpy().astype(np.uint16)
        Image.fromarray(pixels).save(folder / f"{index:03d}.png")


def train(exhume: Command, out: str, samples: int = 12, **options: object) -> dict[str, Any]:
    flags = [value for name, given in options.items() for value in (f"--{name.replace('_', '-')}", given)]
    data = ("--data", "faces", "--samples", samples, "--side", 5)
    return summary_of(exhume("train", SPEC, *data, "--freeze", *flags, "--out", out, "--json"))


def test_inputs_come_back_through_a_frozen_extractor_that_can_be_inverted(exhume: Command) -> None:
    data, model = ("--data", "sphere", "--dim", 6, "--samples", 2), "users_probe_nets:small"
    probe = ("--freeze", "--method", "closed-form")
    trained = summary_of(exhume("train", model, *data, *probe, "--out", "a", "--json"))
    assert trained["training_loss"] < 1e-10
    assert trained["floor"] < 1e-10
    summary_of(exhume("attack", "a", "--model", model, "--json"))
    assert summary_of(exhume("evaluate", "a", "--model", model, "--json"))["error"] < 0.01


def test_images_of_a_folder_are_ranked_and_the_members_come_first(exhume: Command, tmp_path: Path) -> None:
    train(exhume, "a", steps=200)
    write_faces(tmp_path / "mine", 0, 40)
    write_faces(tmp_path / "others", 40, 100)
    shown = exhume("rank", "a", "--candidates", "mine", "--non-members", "others", "--model", SPEC)
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert "shows 1 of at most 12 dimensions" in lines[0]
    assert "not determined" in lines[0]
    assert lines[1].startswith("ranked 40 records against 60 non-members: ")
    assert "no p-value can be below 0.016" in lines[1]
    assert lines[2].startswith("truth: 12 of them were trained on; AUC ")
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["rank_auc"] > 0.9
    with (tmp_path / "a" / "ranking.csv").open() as file:
        table = list(csv.DictReader(file))
    assert sum(int(line["member"]) for line in table[:8]) >= 6
    assert table[0]["record"].endswith(".png")
    assert load_file(tmp_path / "a" / "span.safetensors")["basis"].shape == (1, 301)


def test_a_truth_calibrates_by_itself_and_few_non_members_are_said_to_resolve_little(
    exhume: Command, tmp_path: Path
) -> None:
    train(exhume, "a", method="closed-form")
    write_faces(tmp_path / "mine", 0, 40)
    shown = exhume("rank", "a", "--candidates", "mine", "--model", SPEC)
    assert "against 14 non-members" in shown.stdout
    assert "more of them would resolve more" in shown.stdout
    assert "AUC 1.000" in shown.stdout, "after interpolation the outputs of training records are their labels"


def test_a_head_and_embeddings_in_files_need_no_model(exhume: Command, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(120, 50, generator=generator)
    head = torch.randn(10, 4, generator=generator).T @ rows[:10]
    save_file({"weight": head, "bias": head.mean(dim=1)}, tmp_path / "head.safetensors")
    member = (torch.arange(50) < 10).to(torch.uint8)
    save_file({"embeddings": rows[:50], "member": member}, tmp_path / "mine.safetensors")
    save_file({"embeddings": rows[50:]}, tmp_path / "others.safetensors")
    files = ("--candidates", "mine.safetensors", "--non-members", "others.safetensors")
    found = summary_of(exhume("rank", "head.safetensors", *files, "--out", "ranked", "--json"))
    assert found["rank_auc"] > 0.9
    assert (tmp_path / "ranked" / "ranking.csv").is_file()
    alone = exhume("rank", "head.safetensors", "--candidates", "others.safetensors", "--out", "ranked")
    assert "by score alone: p-values need --non-members" in alone.stdout
    page = (tmp_path / "ranked" / "ranking.html").read_text()
    assert "Give --non-members" in page
    assert "Members found" not in page


def test_a_name_of_a_record_is_no_markup_on_the_page(exhume: Command, tmp_path: Path) -> None:
    train(exhume, "a")
    write_faces(tmp_path / "mine", 0, 20)
    (tmp_path / "mine" / "000.png").rename(tmp_path / "mine" / "<img src=x>.png")
    shown = exhume("rank", "a", "--candidates", "mine", "--model", SPEC, "--out", "ranked")
    assert shown.returncode == 0, shown.stderr
    page = (tmp_path / "ranked" / "ranking.html").read_text()
    assert "&lt;img src=x&gt;.png" in page
    assert "<img" not in page


@pytest.fixture
def pool(tmp_path: Path) -> np.ndarray:
    """200 embeddings, of which a ridge regression is trained on the first 60: pool.npy, members.csv, head.skops."""
    from sklearn.linear_model import Ridge

    dice = np.random.default_rng(0)
    rows, targets = dice.standard_normal((200, 300)), dice.standard_normal(200)
    save_skops(Ridge(1.0, fit_intercept=False).fit(rows[:60], targets[:60]), tmp_path / "head.skops")
    np.savez("pool.npz", embeddings=rows, labels=targets)
    np.savetxt("members.csv", rows[:60], delimiter=",")
    names = [f"x{at}" for at in range(300)]
    table = np.column_stack([rows, targets, np.arange(200) < 60])
    np.savetxt("pool.csv", table, delimiter=",", header=",".join([*names, "y", "kept"]), comments="")
    return rows


@pytest.mark.parametrize(
    "given",
    [
        ("--candidates", "pool.npz", "--members", "members.csv"),
        ("--candidates", "pool.csv", "--members", "kept", "--label", "y"),
    ],
    ids=["rows", "column"],
)
def test_known_members_give_the_rates_without_a_run(exhume: Command, pool: np.ndarray, given: tuple[str, ...]) -> None:
    found = summary_of(exhume("rank", "head.skops", *given, "--out", "ranked", "--json"))
    assert found["rank_members"] == 60
    assert found["rank_non_members"] == 70  # half of the others calibrate
    assert found["rank_tpr_at_1_percent"] > 0.9
    low, high = found["rank_tpr_at_0_1_percent_interval"]
    assert low <= found["rank_tpr_at_0_1_percent"] <= high
    page = Path("ranked/ranking.html").read_text()
    share, (least, most) = found["rank_tpr_at_1_percent"], found["rank_tpr_at_1_percent_interval"]
    assert f"{share:.0%} of the members ({least:.0%} to {most:.0%}) are found at 1 % false alarms" in page
    assert page.count("<td>yes</td>") >= 18, "of the 20 records at the top"
    assert "<script" not in page


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ("nowhere", "found no nowhere"),
        ("others.npy", "found 3 of 3 that are not"),
        ("narrow.npy", "members of 300 numbers"),
    ],
)
def test_members_have_to_be_in_the_pool(exhume: Command, pool: np.ndarray, members: str, complaint: str) -> None:
    np.save("others.npy", pool[:3] + 1)
    np.save("narrow.npy", pool[:3, :7])
    done = exhume("rank", "head.skops", "--candidates", "pool.npz", "--members", members, "--out", "ranked")
    assert done.returncode == 2
    assert complaint in done.stderr


def test_a_column_of_members_says_yes_or_no(exhume: Command, pool: np.ndarray) -> None:
    done = exhume("rank", "head.skops", "--candidates", "pool.csv", "--members", "y", "--out", "ranked")
    assert done.returncode == 2
    assert "expected 0 or 1 in the column 'y'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("nowhere", "--candidates", "mine.safetensors"), 2, "expected a run folder or a .safetensors file"),
        (("a", "--candidates", "nowhere"), 2, "expected a folder of images or a .safetensors file"),
        (("a", "--candidates", "wrong.safetensors"), 2, "expected inputs of 25 numbers or embeddings of 300 numbers"),
        (("a", "--candidates", "mine.safetensors", "--loss", "absolute"), 2, "expected --loss square"),
        (("a", "--candidates", "mine.safetensors", "--initial", "b.safetensors"), 2, "expected no --initial"),
        (("a", "--candidates", "empty"), 2, "expected images"),
        (("a", "--candidates", "mine.safetensors", "--mean", "1,2"), 2, "expected --mean as one number"),
        (("head.safetensors", "--candidates", "mine.safetensors"), 2, "expected --out"),
        (("head.safetensors", "--candidates", "mine.safetensors", "--out", "o"), 2, "embeddings of 50 numbers"),
    ],
)
def test_requests_that_cannot_be_met_are_one_line(
    exhume: Command, tmp_path: Path, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    save_file({"weight": torch.ones(1, 50)}, tmp_path / "head.safetensors")
    save_file({"inputs": torch.ones(5, 25)}, tmp_path / "mine.safetensors")
    save_file({"inputs": torch.ones(5, 24)}, tmp_path / "wrong.safetensors")
    (tmp_path / "empty").mkdir()
    if arguments[0] == "a":
        train(exhume, "a", 2, steps=1)
        arguments = (*arguments, "--model", SPEC)
    refused = exhume("rank", *arguments)
    assert refused.returncode == code, refused.stderr
    assert complaint in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", ["safetensors", "npz", "csv"])
def test_a_model_of_scikit_learn_is_ranked_from_its_file(exhume: Command, tmp_path: Path, form: str) -> None:
    from sklearn.linear_model import LogisticRegression

    from published_files import save_skops

    dice = np.random.default_rng(0)
    rows = dice.normal(size=(300, 120)).round(4)
    classes = (rows[:, :3] + dice.normal(size=(300, 3))).argmax(axis=1)
    words = np.array(["cat", "dog", "emu"])[classes]
    labels = words if form == "csv" else classes
    save_skops(LogisticRegression(C=0.1, tol=1e-8, max_iter=999).fit(rows[:50], labels[:50]), tmp_path / "m.skops")
    for name, part in (("mine", slice(0, 150)), ("others", slice(150, 300))):
        tensors = {"embeddings": rows[part], "labels": classes[part]}
        if form == "csv":
            lines = [[*(f"x{at}" for at in range(120)), "animal"]]
            lines += [[*row, word] for row, word in zip(rows[part].tolist(), words[part].tolist(), strict=True)]
            with (tmp_path / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows(lines)
        elif form == "npz":
            marked = {"member": np.arange(150) < 50} if name == "mine" else {}
            np.savez(tmp_path / f"{name}.npz", allow_pickle=False, **tensors, **marked)
        else:
            save_file({key: torch.from_numpy(value.copy()) for key, value in tensors.items()}, f"{name}.safetensors")
    files = ("--candidates", f"mine.{form}", "--non-members", f"others.{form}")
    label = ("--label", "animal") if form == "csv" else ()
    found = summary_of(exhume("rank", "m.skops", *files, *label, "--out", "o", "--json"))
    assert found["rank_explained"] == pytest.approx(1, abs=1e-3)
    assert 45 <= found["rank_called"] <= 60
    with (tmp_path / "o" / "ranking.csv").open() as file:
        table = list(csv.DictReader(file))
    assert sum(int(line["record"]) < 50 for line in table[:50]) >= 47
    if form == "npz":
        assert found["rank_tpr_at_1_percent"] > 0.9
        low, high = found["rank_tpr_at_0_1_percent_interval"]
        assert 0.7 < low < found["rank_tpr_at_0_1_percent"] <= high
    if form == "csv":
        refused = exhume("rank", "m.skops", *files, "--out", "p")
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert "found texts in the column 'animal'" in refused.stderr
