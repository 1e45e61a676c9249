"""What docs/scan.md and the cases of docs/auditing.md tell a user to type works as it stands."""

import copy
import csv
import re
import shlex
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
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
    return commands(cases)


def layers(state: dict[str, Tensor]) -> Layers:
    return [(state[f"{at}.weight"].numpy(), state[f"{at}.bias"].numpy()) for at in (0, 2)]


def write_onnx(state: dict[str, Tensor], path: str) -> None:
    import onnx
    from onnx import TensorProto, helper

    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, value.shape, value.numpy().tobytes(), raw=True)
        for name, value in state.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "0.weight", "0.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("Gemm", ["a", "2.weight", "2.bias"], ["y"], transB=1),
    ]
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 20])]
    given = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", taken, given, initializer=weights)), path)


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
    write_onnx(before, str(folder / "before.onnx"))
    write_onnx(after, str(folder / "model.onnx"))
    save_keras(layers(before), folder / "before.keras")
    save_keras(layers(after), folder / "model.keras")
    save_h5(layers(after), folder / "model.h5")
    save_skops(fitted(SVC()), folder / "svc.skops")
    (folder / "published").mkdir()
    save_skops(fitted(SVC()), folder / "published" / "svc.skops")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = MLPClassifier((400,), solver="sgd", alpha=0.0, max_iter=5, random_state=0).fit(x[:8], labels[:8])
    save_skops(network, folder / "mlp.skops")
    write_pools(folder, dice)
    write_versions(folder, dice)
    write_stored(folder, dice)
    write_adapter(folder)
    return folder


def write_pools(folder: Path, dice: np.random.Generator) -> None:
    """A logistic regression on 20 of 60 records."""
    x = dice.normal(size=(60, 20)).round(3)
    labels = (x[:, 0] + dice.normal(size=60) > 0).astype(int)
    save_skops(LogisticRegression().fit(x[:20], labels[:20]), folder / "logistic.skops")
    for name, part in (("pool", slice(0, 40)), ("others", slice(40, 60))):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            records = np.concatenate([x[part], labels[part, None]], axis=1)
            csv.writer(file).writerows([[*(f"m{at}" for at in range(20)), "digit"], *records.tolist()])


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


def write_stored(folder: Path, dice: np.random.Generator) -> None:
    """A kernel machine with and without one of its support vectors."""
    x = dice.normal(size=(60, 5))
    labels = (x[:, 0] + dice.normal(size=60) > 0).astype(int)
    older = SVC().fit(x, labels)
    save_skops(older, folder / "older.skops")
    kept = np.arange(60) != older.support_[3]
    save_skops(SVC().fit(x[kept], labels[kept]), folder / "newer.skops")
    np.save(folder / "erased.npy", x[~kept])
    for name, part in (("old", slice(0, 60)), ("new", slice(1, 60))):
        save_skops(RidgeClassifier(alpha=10).fit(x[part], labels[part]), folder / f"linear-{name}.skops")
    np.save(folder / "deleted-rows.npy", x[:1])
    np.save(folder / "public-rows.npy", dice.normal(size=(100, 5)))


def write_adapter(folder: Path) -> None:
    """A LoRA adapter of rank 8 on the first layer of a small network, and a new head, trained on four records."""
    place = folder / "adapter"
    place.mkdir()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, head, rows = nn.Linear(10, 60), nn.Linear(60, 3), torch.randn(30, 10)
        base = {"1.weight": first.weight, "1.bias": first.bias, "2.weight": head.weight, "2.bias": head.bias}
        save_file({name: value.detach().clone() for name, value in base.items()}, folder / "base.safetensors")
        down, up = nn.Parameter(torch.randn(8, 10) / 5), nn.Parameter(torch.zeros(60, 8))
        optimiser = torch.optim.SGD([down, up, *head.parameters()], 0.1)
        for _ in range(50):
            optimiser.zero_grad()
            outputs = head(torch.relu(first(rows[:4]) + rows[:4] @ down.T @ up.T))
            nn.functional.cross_entropy(outputs, torch.tensor([0, 1, 2, 0])).backward()
            optimiser.step()
    tensors = {"1.lora_A.weight": down, "1.lora_B.weight": up, "2.weight": head.weight, "2.bias": head.bias}
    named = {f"base_model.model.{name}": value.detach().clone() for name, value in tensors.items()}
    save_file(named, place / "adapter_model.safetensors")
    (place / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8, "lora_alpha": 8}')
    for name, part in (("pool", rows[:15]), ("others", rows[15:])):
        with (folder / f"adapter-{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[f"m{at}" for at in range(10)], *part.tolist()])


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("command", [*of_scan(), *of_audit()])
def test_a_command_of_the_docs_works(
    exhume: Command, files: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(files)
    done = exhume(*shlex.split(command)[1:])
    assert done.returncode == 0, done.stderr
    if " audit adapter" in command:
        assert "Trained as a whole, and attacked: 2." in done.stdout
    elif " rank adapter" in command:
        assert "4 of 15 records lie in it to rounding" in done.stdout
    elif "--against older" in command:
        assert "deleted: the numbers of all later records fall there" in done.stdout
    elif " audit " in command and ("--initial" in command or "--against before" in command):
        assert "Recovered" in done.stdout.splitlines()[2] or "recovered" in done.stdout.lower()
        assert "silent-units (seed 0): recovered" in done.stdout


def test_the_docs_have_commands() -> None:
    assert len(of_scan()) >= 6
    assert len(of_audit()) >= 12
