"""What docs/scan.md, the cases of docs/auditing.md and the guides tell a user to type works as it stands.

Commands of guides that are not here make their own files: see test_pages.py."""

import copy
import csv
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from sklearn.svm import SVC
from torch import Tensor, nn

from published_files import Layers, fitted, save_h5, save_keras, save_skops

Command = Callable[..., subprocess.CompletedProcess[str]]
DOCS = Path(__file__).parents[1] / "docs"


def commands(text: str) -> list[str]:
    return [line.strip() for line in re.findall(r"^    (exhume [^\n#]*)", text, flags=re.MULTILINE)]


def of_scan() -> list[str]:
    return commands((DOCS / "scan.md").read_text(encoding="utf-8"))


def of_audit() -> list[str]:
    cases = (DOCS / "auditing.md").read_text(encoding="utf-8").partition("## By case")[2].partition("\n## ")[0]
    guides = [path.read_text(encoding="utf-8") for path in sorted((DOCS / "guides").glob("*.md"))]
    return [command for text in (cases, *guides) for command in commands(text)]


def layers(state: dict[str, Tensor]) -> Layers:
    return [(state[f"{at}.weight"].numpy(), state[f"{at}.bias"].numpy()) for at in (0, 2)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the commands name: a network of 20 inputs and 400 units on eight records of a table."""
    folder = tmp_path_factory.mktemp("cases")
    dice = np.random.default_rng(0)
    x, labels = dice.normal(size=(16, 20)).round(2), np.arange(16) % 2
    names = [f"m{at}" for at in range(20)]
    with (folder / "train.csv").open("w", newline="") as file:
        records = np.concatenate([x[:8], labels[:8, None]], axis=1)
        csv.writer(file).writerows([[*names, "digit"], *records.tolist()])
    columns: dict[str, list[float]] = {name: x[8:, at].tolist() for at, name in enumerate(names)}
    pq.write_table(pa.table(columns | {"digit": labels[8:].tolist()}), folder / "test.parquet")
    np.savez(folder / "arrays.npz", inputs=x[:8], labels=labels[:8])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 2))
        before = copy.deepcopy(model.state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        inputs, target = torch.tensor(x[:8]).float(), torch.tensor(labels[:8])
        for _ in range(60):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), target).backward()
            optimiser.step()
    after = copy.deepcopy(model.state_dict())
    (folder / "hub").mkdir()
    for name, state in (("before", before), ("after", after), ("hub/model", after)):
        save_file(state, folder / f"{name}.safetensors")
    torch.save(optimiser.state_dict(), folder / "hub" / "optimizer.pt")
    torch.save({"model": after, "optimizer": optimiser.state_dict()}, folder / "checkpoint.pt")
    save_keras(layers(before), folder / "before.keras")
    save_keras(layers(after), folder / "model.keras")
    save_h5(layers(after), folder / "model.h5")
    save_skops(fitted(SVC()), folder / "svc.skops")
    (folder / "published").mkdir()
    save_skops(fitted(SVC()), folder / "published" / "svc.skops")
    write_versions(folder, dice)
    return folder


def write_versions(folder: Path, dice: np.random.Generator) -> None:
    """A ridge model on 300 random features, with and without its first record."""
    x, rows = dice.normal(size=(300, 12)), dice.normal(size=(300, 12))
    features = np.maximum(x @ rows.T, 0)
    target = np.stack([x[:, 0], x[:, 1] * x[:, 2]])[:, :100]

    def fit(first: int) -> Tensor:
        own = features[first:100]
        return torch.from_numpy(np.linalg.solve(own.T @ own + 50 * np.eye(300), own.T @ target[:, first:].T).T.copy())

    save_file({"V": torch.from_numpy(rows).float()}, folder / "V.safetensors")
    save_file({"weight": fit(0)}, folder / "old.safetensors")
    save_file({"weight": fit(1)}, folder / "new.safetensors")
    save_file({"inputs": torch.from_numpy(x[:1]).float()}, folder / "deleted.safetensors")
    save_file({"inputs": torch.from_numpy(x[100:]).float()}, folder / "public.safetensors")


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("command", [*of_scan(), *of_audit()])
def test_a_command_of_the_docs_works(
    exhume: Command, files: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(files)
    done = exhume(*shlex.split(command)[1:])
    assert done.returncode == 0, done.stderr
    if " audit " in command and "--features" not in command:
        assert "Recovered" in done.stdout.splitlines()[2] or "recovered" in done.stdout.lower()
        assert "silent-units (seed 0): recovered" in done.stdout


def test_the_docs_have_commands() -> None:
    assert len(of_scan()) >= 6
    assert len(of_audit()) >= 7
