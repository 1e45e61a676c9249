"""A network from its file alone: the same question as with its code, whatever the format."""

import copy
import json
import shutil
import subprocess
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from torch import Tensor, nn

from exhume.auditing.from_files import read_question
from exhume.auditing.without_code import read_network
from exhume.errors import ExhumeError, UsageError
from exhume.formats.chain_of_tensors import order_of
from exhume.formats.reading import read_contents
from exhume.requests.audit import AuditRequest
from exhume.scanning.scan import scan
from published_files import Layers, save_h5, save_keras, save_skops

Shapes = dict[str, tuple[int, ...]]
Command = Callable[..., subprocess.CompletedProcess[str]]
USERS = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
"""
N = 12


def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    raw, labels = load_digits(return_X_y=True)
    x = torch.tensor(raw, dtype=torch.float32)
    std = x.std(dim=0)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return ((x - x.mean(dim=0)) / torch.where(std > 0, std, 1.0))[order], torch.tensor(labels)[order]


@dataclass(frozen=True, eq=False)
class Victim:
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    optimiser: dict[str, Any]
    inputs: Tensor
    labels: Tensor

    def layers(self, state: dict[str, Tensor]) -> Layers:
        return [(state[f"{at}.weight"].numpy(), state[f"{at}.bias"].numpy()) for at in (0, 2, 4)]


@pytest.fixture(scope="module")
def victim() -> Victim:
    x, y = digits()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
        before = copy.deepcopy(model.state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(120):
            chosen = torch.randperm(N)[:6]
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimiser.step()
    return Victim(before, copy.deepcopy(model.state_dict()), optimiser.state_dict(), x[:N], y[:N].float())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: Victim) -> Iterator[Path]:
    (tmp_path / "users_digits.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    save_file({"inputs": victim.inputs, "labels": victim.labels}, "truth.safetensors")
    yield tmp_path
    sys.modules.pop("users_digits", None)


def plain(state: dict[str, Tensor], folder: Path) -> Path:
    save_file(state, folder / "a.safetensors")
    return folder / "a.safetensors"


def checkpoint(state: dict[str, Tensor], folder: Path) -> Path:
    torch.save(
        {"epoch": 3, "state_dict": {f"module.net.{name}": value for name, value in state.items()}}, folder / "a.pt"
    )
    return folder / "a.pt"


def hub_folder(state: dict[str, Tensor], folder: Path) -> Path:
    (folder / "config.json").write_text("{}")
    save_file(state, folder / "model.safetensors")
    return folder


def shards(state: dict[str, Tensor], folder: Path) -> Path:
    names = sorted(state)
    parts = {f"m-{number}.safetensors": names[number::2] for number in range(2)}
    for file, own in parts.items():
        save_file({name: state[name] for name in own}, folder / file)
    listed = {name: file for file, own in parts.items() for name in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    return folder


def as_onnx(state: dict[str, Tensor], folder: Path) -> Path:
    """As torch exports it: Gemm with transB, Relu, Softmax at the end."""
    nodes, weights, current = [], [], "x"
    for at in (0, 2, 4):
        for part in ("weight", "bias"):
            values = state[f"{at}.{part}"]
            weights.append(
                helper.make_tensor(f"{at}.{part}", TensorProto.FLOAT, values.shape, values.numpy().tobytes(), raw=True)
            )
        nodes.append(helper.make_node("Gemm", [current, f"{at}.weight", f"{at}.bias"], [f"h{at}"], transB=1))
        nodes.append(helper.make_node("Relu" if at < 4 else "Softmax", [f"h{at}"], [f"a{at}"]))
        current = f"a{at}"
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 64])]
    given = [helper.make_tensor_value_info(current, TensorProto.FLOAT, [None, 10])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", taken, given, initializer=weights)), folder / "a.onnx")
    return folder / "a.onnx"


def as_keras(state: dict[str, Tensor], folder: Path) -> Path:
    return save_keras(Victim.layers(None, state), folder / "a.keras")  # type: ignore[arg-type]


def as_h5(state: dict[str, Tensor], folder: Path) -> Path:
    return save_h5(Victim.layers(None, state), folder / "a.h5")  # type: ignore[arg-type]


FORMATS = (plain, checkpoint, hub_folder, shards, as_onnx, as_keras, as_h5)


@pytest.mark.parametrize("save", FORMATS)
def test_the_question_is_the_same_as_with_code(victim: Victim, tmp_path: Path, save: Callable[..., Path]) -> None:
    torch.save(victim.after, "after.pt")
    torch.save(victim.before, "before.pt")
    told = {"truth": "truth.safetensors", "out": Path("o")}
    code = read_question(
        AuditRequest(weights=Path("after.pt"), initial="before.pt", model="users_digits:net", **told)  # type: ignore[arg-type]
    )
    for name in ("after", "before"):
        (tmp_path / name).mkdir()
    after, before = save(victim.after, tmp_path / "after"), save(victim.before, tmp_path / "before")
    none = read_question(AuditRequest(weights=after, initial=str(before), **told))  # type: ignore[arg-type]
    seen, other = code.target.observation, none.target.observation
    assert torch.equal(seen.weights, other.weights)
    (layer,), (same,) = seen.layers, other.layers
    for one, two in zip((layer.target, *layer.ends), (same.target, *same.ends), strict=True):
        assert torch.equal(one, two)
    inputs = victim.inputs[:3].to(seen.weights.dtype)
    torch.testing.assert_close(code.target.outputs(inputs), none.target.outputs(inputs))
    said = none.target.notes[0]
    assert "dense layers 64-512-128-10" in said
    assert ("is assumed" in said) == (save in (plain, checkpoint, hub_folder, shards))
    assert "gives 100% of them their own class" in none.target.notes[1]


@pytest.mark.usefixtures("shapes_unchecked")
def test_the_result_is_the_same_as_with_code(exhume: Command, victim: Victim) -> None:
    save_file(victim.after, "after.safetensors")
    save_file(victim.before, "before.safetensors")
    asked = ("--initial", "before.safetensors", "--truth", "truth.safetensors", "--budget", "60s", "--json")
    found = []
    for out, model in (("a", ()), ("b", ("--model", "users_digits:net"))):
        done = exhume("audit", "after.safetensors", *model, *asked, "--out", out)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    keys = ("verdict", "method", "recovered", "median_relative_error", "worst_relative_error", "samples_found")
    assert [found[0].get(key) for key in keys] == [found[1].get(key) for key in keys]
    assert (found[0]["verdict"], found[0]["recovered"]) == ("recovered", N)
    assert "relu is assumed" in Path("a/report.html").read_text()


def test_the_optimiser_of_a_folder_is_used(exhume: Command, victim: Victim, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    hub_folder(victim.after, tmp_path / "hub")
    torch.save(victim.optimiser, tmp_path / "hub" / "optimizer.pt")
    (layer, *_) = read_question(AuditRequest(weights=Path("hub"), out=Path("o"))).target.observation.layers
    assert layer.source == "momentum"


def test_the_optimiser_of_scikit_learn_is_used(tmp_path: Path) -> None:
    from sklearn.neural_network import MLPClassifier

    x, y = digits()
    model = MLPClassifier((32,), solver="sgd", max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[:50].numpy().astype(np.float64), y[:50].numpy())
    network = read_network(save_skops(model, tmp_path / "a.skops"))
    module = network.module("relu").double()
    module.load_state_dict(dict(network.file.tensors))
    logits = module(x[:50].double()).softmax(dim=1).detach().numpy()
    np.testing.assert_allclose(logits, model.predict_proba(x[:50].numpy().astype(np.float64)), atol=1e-9)
    (layer, *_) = read_question(AuditRequest(weights=tmp_path / "a.skops", out=Path("o"))).target.observation.layers
    assert layer.source == "momentum"


def test_an_activation_that_is_given_counts(victim: Victim) -> None:
    save_file(victim.after, "after.safetensors")
    asked = {"truth": "truth.safetensors", "out": Path("o")}
    tanh = read_question(AuditRequest(weights=Path("after.safetensors"), activation="tanh", **asked))  # type: ignore[arg-type]
    assert "tanh between them (as you gave it)" in tanh.target.notes[0]
    with pytest.raises(UsageError, match="expected an activation out of"):
        read_question(AuditRequest(weights=Path("after.safetensors"), activation="nope", out=Path("o")))


@pytest.mark.parametrize(
    ("shapes", "names"),
    [
        ({"0.weight": (5, 9), "10.weight": (2, 4), "2.weight": (4, 5)}, ("0", "2", "10")),
        ({"head.weight": (2, 4), "body.weight": (4, 9)}, ("body", "head")),
        ({"l1.weight": (7, 7), "l10.weight": (7, 7), "l2.weight": (7, 7)}, ("l1", "l2", "l10")),
        ({"b.1.x.weight": (7, 7), "b.0.z.weight": (7, 7), "out.weight": (2, 7)}, ("b.0.z", "b.1.x", "out")),
    ],
)
def test_the_order_of_the_layers_follows_from_shapes_or_names(
    shapes: dict[str, tuple[int, ...]], names: tuple[str, ...]
) -> None:
    assert order_of(shapes, Path("a"), False).names == names


def test_every_order_of_a_chain_is_found_again() -> None:
    """The naive twin: all permutations."""
    from itertools import pairwise, permutations

    dice = np.random.default_rng(0)
    for _ in range(60):
        widths = dice.integers(1, 4, 6)
        layers = {f"n{at}.weight": (int(out), int(into)) for at, (into, out) in enumerate(pairwise(widths))}
        shuffled = {name: layers[name] for name in dice.permutation(list(layers))}
        fitting = [
            order
            for order in permutations(shuffled)
            if all(shuffled[b][1] == shuffled[a][0] for a, b in pairwise(order))
        ]
        found = order_of(shuffled, Path("a"), False)
        assert found.only_one == (len(fitting) == 1)
        assert tuple(f"{name}.weight" for name in found.names) in fitting


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"c.weight": (3, 3, 2, 2), "fc.weight": (2, 3)}, "found 'c.weight' \\(3x3x2x2\\)"),
        ({"a.weight": (3, 4), "bn.weight": (3,), "b.weight": (2, 3)}, "found 'bn.weight'"),
        ({"a.weight": (3, 4), "b.weight": (2, 5)}, "that read each other"),
        ({"a.weight": (3, 4), "a.bias": (3,)}, "2 to 64 dense layers"),
        ({"b.weight": (4, 4), "a.weight": (4, 3), "c.weight": (4, 4), "d.weight": (3, 4)}, "several orders that fit"),
        ({"dec.weight": (4, 4), "enc.weight": (4, 4)}, "numbers in the names .* dec enc or enc dec"),
        ({"dec.weight": (4, 3), "enc.weight": (3, 4)}, "numbers in the names"),
        ({"up.0.weight": (4, 4), "down.0.weight": (4, 4)}, "numbers in the names"),
        ({f"a{at}.weight": (5, 5) for at in range(40)} | {"z.weight": (7, 7)}, "that read each other"),
    ],
)
def test_what_is_no_chain_is_refused_in_one_line(shapes: Shapes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        order_of(shapes, Path("a.safetensors"), False)
    assert "--model" in str(refused.value)


def test_another_network_as_a_start_is_one_line(victim: Victim) -> None:
    save_file(victim.after, "after.safetensors")
    save_file({"0.weight": torch.ones(9, 64), "1.weight": torch.ones(10, 9)}, "other.safetensors")
    with pytest.raises(ExhumeError, match="expected a start of 3 layers"):
        read_question(AuditRequest(weights=Path("after.safetensors"), initial="other.safetensors", out=Path("o")))


def test_a_network_that_is_no_chain_of_onnx_or_keras_is_refused(victim: Victim, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Gemm", ["c", "v"], ["y"]),
    ]
    weights = [
        helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 1, 1], [1.0]),
        helper.make_tensor("v", TensorProto.FLOAT, [1, 1], [1.0]),
    ]
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 1])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", taken, [], initializer=weights)), tmp_path / "a.onnx")
    with pytest.raises(UsageError, match="found 0 of 2 layers up to 'Conv'"):
        read_network(tmp_path / "a.onnx")
    path = save_keras(victim.layers(victim.after), tmp_path / "a.keras", activation="mish")
    with pytest.raises(UsageError, match="found 'mish'"):
        read_network(path)


@pytest.mark.slow
def test_the_network_of_the_silent_units_is_audited_without_code(exhume: Command, tmp_path: Path) -> None:
    """3072-1000-1000-10 on CIFAR-10: every record comes back from two files."""
    data = Path(__file__).parents[3] / "shared" / "data" / "cifar-10-batches-bin" / "data_batch_1.bin"
    if not data.is_file():
        pytest.skip("CIFAR-10 is not in ../shared/data")
    raw = torch.from_numpy(np.fromfile(data, np.uint8, 20 * 3073).reshape(20, 3073).copy())
    x, y = raw[:, 1:].float() / 255 - 0.5, raw[:, 0].long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3072, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
    save_file(model.state_dict(), "before.safetensors")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    save_file(model.state_dict(), "after.safetensors")
    save_file({"inputs": x, "labels": y.float()}, "cifar.safetensors")
    done = exhume(
        "audit",
        "after.safetensors",
        "--initial",
        "before.safetensors",
        "--truth",
        "cifar.safetensors",
        "--json",
        "--out",
        "o",
    )
    found = json.loads(done.stdout)
    assert (found["verdict"], found["recovered"]) == ("recovered", 20)


def test_rows_that_show_images_are_audited_as_such(victim: Victim, tmp_path: Path) -> None:
    """The network takes flat rows, so the shape of an image says how they look and not what it takes."""
    weights = plain(victim.after, tmp_path)
    asked = {"weights": str(weights), "image_shape": "1,8,8", "out": "o", "truth": "truth.safetensors"}
    question = read_question(AuditRequest.from_texts(asked))
    assert question.target.observation.image_shape == (1, 8, 8)
    assert question.truth is not None
    assert question.truth.image_shape == (1, 8, 8)
    with pytest.raises(UsageError, match=r"expected (images|a model that takes)"):
        read_question(AuditRequest.from_texts({**asked, "image_shape": "1,8,7"}))


def test_a_checkpoint_as_timm_writes_it(victim: Victim, tmp_path: Path) -> None:
    """Its settings are an `argparse.Namespace`: no code, and the seed is among them."""
    told = {"arch": "mlp", "epoch": 3, "args": Namespace(seed=42, lr=0.1), "version": 2, "metric": 0.5}
    states = {"state_dict": victim.after, "optimizer": victim.optimiser, "state_dict_ema": victim.before}
    torch.save(told | states, tmp_path / "last.pth.tar")
    assert read_network(tmp_path / "last.pth.tar").file.beside.average is not None
    found = {finding.rule: finding for finding in scan(tmp_path).findings}
    assert {"seed", "optimiser-state", "moving-average"} <= set(found)
    assert "(42)" in found["seed"].what


@pytest.mark.usefixtures("shapes_unchecked")
def test_a_folder_is_audited_with_code_as_well(victim: Victim, tmp_path: Path) -> None:
    for name, state in (("after", victim.after), ("before", victim.before)):
        (tmp_path / name).mkdir()
        shards(state, tmp_path / name)
    asked = {"weights": "after", "model": "users_digits:net", "initial": "before", "out": "o"}
    assert read_question(AuditRequest.from_texts(asked)).target.observation.layers


def test_a_folder_of_checkpoints_names_them(victim: Victim, tmp_path: Path) -> None:
    """As transformers' Trainer leaves it, when nobody saved the model."""
    for step in (15, 30):
        (tmp_path / "run" / f"checkpoint-{step}").mkdir(parents=True)
        save_file(victim.after, tmp_path / "run" / f"checkpoint-{step}" / "model.safetensors")
    with pytest.raises(UsageError, match="in its folders checkpoint-15, checkpoint-30; name the folder"):
        read_network(tmp_path / "run")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
def test_a_folder_whose_files_lead_out_is_refused(victim: Victim, tmp_path: Path, name: str) -> None:
    """In the cache of Hugging Face a snapshot is made of links to its blobs: these are read."""
    snapshot, blobs = tmp_path / "snapshots" / "1f", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    hub_folder(victim.after, snapshot)
    torch.save(victim.optimiser, snapshot / "optimizer.pt")
    for place in (blobs, tmp_path / "elsewhere"):
        shutil.move(snapshot / name, place)
        place = place / name if place.is_dir() else place
        (snapshot / name).symlink_to(place)
        if place.parent == blobs:
            assert read_network(snapshot).file.beside.optimiser is not None
        elif name == "model.safetensors":
            with pytest.raises(ExhumeError, match="a link that leads out of the folder"):
                read_network(snapshot)
        else:
            (note,) = read_network(snapshot).file.beside.notes
            assert "a link that leads out of the folder" in note
        (snapshot / name).unlink()
        shutil.move(place, snapshot / name)


def test_the_start_of_a_chain_is_drawn_again_from_its_seed(tmp_path: Path) -> None:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(6, 80), nn.ReLU(), nn.Linear(80, 2))
    start = copy.deepcopy(model.state_dict())
    optimiser, rows = torch.optim.SGD(model.parameters(), 0.1), torch.randn(3, 6)
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(rows), torch.tensor([0, 1, 0])).backward()
        optimiser.step()
    save_file(model.state_dict(), tmp_path / "after.safetensors")
    again = read_network(tmp_path / "after.safetensors").drawn(7).state_dict()
    assert all(torch.equal(again[name], value) for name, value in start.items())
    out = tmp_path / "out"
    searched = AuditRequest(weights=tmp_path / "after.safetensors", initial_seed_search=20, out=out)
    target = read_question(searched).target
    assert target.notes[0].startswith("Your seed is 7")
    assert any("drawn again from the seed" in note for note in target.notes)
    told = read_question(AuditRequest(weights=tmp_path / "after.safetensors", initial_seed=7, out=out)).target
    assert torch.equal(told.observation.weights, target.observation.weights)


@pytest.mark.parametrize(("name", "layer"), [("tanh", nn.Tanh()), ("silu", nn.SiLU()), ("relu", nn.ReLU())])
def test_the_assumed_activation_can_fail_on_the_records(name: str, layer: nn.Module) -> None:
    """All classes are right with relu, whatever the network: the change of the head tells."""
    x, y = digits()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 512), layer, nn.Linear(512, 10))
    save_file(copy.deepcopy(model.state_dict()), "b.safetensors")
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[:N]), y[:N]).backward()
        optimiser.step()
    save_file(model.state_dict(), "a.safetensors")
    asked = {"weights": "a.safetensors", "truth": "truth.safetensors", "out": "o"}
    assumed = read_question(AuditRequest.from_texts({**asked, "initial": "b.safetensors"})).target.notes
    doubted = [note for note in assumed if note.startswith("The activation is probably not relu")]
    assert "with relu the network gives 100% of them their own class" in assumed[1]
    assert len(doubted) == (name != "relu")
    if name != "relu":
        assert doubted[0].endswith(f"give --activation {name}.")
    given = read_question(
        AuditRequest.from_texts({**asked, "initial": "b.safetensors", "activation": name})
    ).target.notes
    assert f"against every other activation: with {name}" in given[2]
    alone = read_question(AuditRequest.from_texts(asked)).target.notes
    assert "does not tell activations apart" in alone[1]


def gelu_in_parts() -> list[onnx.NodeProto]:
    """As torch exports it for opset 17."""
    return [
        helper.make_node("Div", ["h", "root"], ["g1"]),
        helper.make_node("Erf", ["g1"], ["g2"]),
        helper.make_node("Add", ["g2", "one"], ["g3"]),
        helper.make_node("Mul", ["h", "g3"], ["g4"]),
        helper.make_node("Mul", ["g4", "half"], ["a"]),
    ]


@pytest.mark.parametrize(
    ("nodes", "name"),
    [
        (gelu_in_parts(), "gelu"),
        ([helper.make_node("Sigmoid", ["h"], ["s"]), helper.make_node("Mul", ["s", "h"], ["a"])], "silu"),
        ([helper.make_node("LeakyRelu", ["h"], ["a"], alpha=0.01)], "leaky_relu"),
        ([helper.make_node("Elu", ["h"], ["a"])], "elu"),
        ([helper.make_node("Clip", ["h", "zero", "six"], ["a"])], "relu6"),
        ([helper.make_node("Identity", ["h"], ["a"])], "linear"),
        ([helper.make_node("LeakyRelu", ["h"], ["a"], alpha=0.3)], None),
        ([helper.make_node("Sigmoid", ["h"], ["s"]), helper.make_node("Mul", ["s", "s"], ["a"])], None),
        ([helper.make_node("Identity", ["h"], ["i"]), helper.make_node("Identity", ["i"], ["h"])], ...),
        ([helper.make_node("Relu", ["h"], ["i"]), helper.make_node("Relu", ["i"], ["h"])], ...),
    ],
)
def test_an_activation_that_onnx_writes_in_parts_is_known_by_its_values(
    nodes: list[onnx.NodeProto], name: Any, tmp_path: Path
) -> None:
    constants = {"root": 2**0.5, "one": 1.0, "half": 0.5, "zero": 0.0, "six": 6.0}
    weights = [helper.make_tensor(key, TensorProto.FLOAT, [], [value]) for key, value in constants.items()]
    weights += [helper.make_tensor(key, TensorProto.FLOAT, [2, 2], [1.0, 2, 3, 4]) for key in ("w", "v")]
    graph = [helper.make_node("Gemm", ["x", "w"], ["h"]), *nodes, helper.make_node("Gemm", ["a", "v"], ["y"])]
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])]
    onnx.save(helper.make_model(helper.make_graph(graph, "g", taken, [], initializer=weights)), tmp_path / "a.onnx")
    if isinstance(name, str):
        assert read_network(tmp_path / "a.onnx").activation == name
        return
    words = "expected an activation out of relu" if name is None else "found a loop through|found 1 of 2 layers"
    with pytest.raises(UsageError, match=words):
        read_network(tmp_path / "a.onnx")


@pytest.mark.parametrize(
    ("name", "found"), [("silu", "silu"), ("swish", "silu"), ("elu", "elu"), ("relu6", "relu6"), ("leaky_relu", None)]
)
def test_activations_of_keras(victim: Victim, tmp_path: Path, name: str, found: str | None) -> None:
    path = save_keras(victim.layers(victim.after), tmp_path / "a.keras", activation=name)
    if found is None:
        with pytest.raises(UsageError, match=r"leaky_relu with a slope of 0\.2"):
            read_network(path)
    else:
        assert read_network(path).activation == found


def test_names_without_torch_are_exhumes_own() -> None:
    """The formats work without torch: their copy of each activation has the values of exhume's."""
    from exhume.activations import ACTIVATIONS
    from exhume.formats.elementwise import ACTIVATIONS as OF_FILES
    from exhume.formats.elementwise import POINTS

    for name, value in OF_FILES.items():
        own = ACTIVATIONS.find(name).value(torch.from_numpy(POINTS))
        np.testing.assert_allclose(value(POINTS), own.numpy(), atol=1e-12, err_msg=name)


def bin_shards(state: dict[str, Tensor], folder: Path) -> Path:
    names = sorted(state)
    parts = {f"pytorch_model-{number}.bin": names[number::2] for number in range(2)}
    for file, own in parts.items():
        torch.save({name: state[name] for name in own}, folder / file)
    listed = {name: file for file, own in parts.items() for name in own}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    return folder


def test_shards_of_pytorch_are_one_file(victim: Victim, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    folder = bin_shards(victim.after, tmp_path / "hub")
    for path in (folder, folder / "pytorch_model.bin.index.json"):
        network = read_network(path)
        assert network.order == ("0", "2", "4")
        assert all(torch.equal(network.file.tensors[name], value) for name, value in victim.after.items())
    assert set(read_contents(folder / "pytorch_model.bin.index.json").arrays) == set(victim.after)
    listed = {"0.bias": "pytorch_model-0.bin", "9.weight": "pytorch_model-1.bin"}
    index = folder / "pytorch_model.bin.index.json"
    for wrong, words in (
        (listed, "expected '9.weight' in pytorch_model-1.bin"),
        ({"a": "../hub/x.bin"}, "which leads elsewhere"),
        ({"a": "pytorch_model.bin.index.json"}, "another index"),
        ({}, "expected shards in .* found none"),
    ):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(ExhumeError, match=words):
            read_network(folder)


def test_the_settings_of_a_folder_help_and_nothing_of_them_is_run(victim: Victim, tmp_path: Path) -> None:
    hub_folder(victim.after, tmp_path)
    assert "relu is assumed" in read_question(AuditRequest(weights=tmp_path, out=Path("o"))).target.notes[0]
    (tmp_path / "config.json").write_text('{"hidden_act": "tanh", "model_type": "mlp"}')
    (tmp_path / "training_args.json").write_text('{"seed": 42, "optim": "adamw_torch", "weight_decay": 0.01}')
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x04cos\nsystem\n.")
    notes = read_question(AuditRequest(weights=tmp_path, out=Path("o"))).target.notes
    assert "tanh between them (as config.json says)" in notes[0]
    (args,) = [note for note in notes if note.startswith("training_args.json says")]
    assert "give --initial-seed 42" in args
    assert "optimiser adamw_torch; weight decay 0.01; give --recipe adam,weight-decay" in args
    assert any("training_args.bin is a pickle with code, and was not read" in note for note in notes)
    given = read_question(AuditRequest(weights=tmp_path, activation="relu", out=Path("o"))).target.notes[0]
    assert "(as you gave it)" in given
    (tmp_path / "config.json").write_text('{"hidden_act": "gelu_new"}')
    (tmp_path / "training_args.json").write_text('{"seed": "x", "optim": 3, "weight_decay": true')
    notes = read_question(AuditRequest(weights=tmp_path, out=Path("o"))).target.notes
    assert "relu is assumed" in notes[0]
    assert any("'gelu_new', which is none of exhume's" in note for note in notes)
    assert any("training_args.json was not used" in note for note in notes)
