"""No network but for `data fetch`, no telemetry, files for the owner where they hold data, reports without paths."""

import ast
import base64
import dataclasses
import getpass
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

import exhume
import exhume_papers
from exhume.files import PRIVATE_KINDS, read_tensors
from exhume.shown import Shown
from exhume.tensor_header import read_header
from exhume_papers.sweeps import ray_engine

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}

# Runs command lines one after the other and lists what they do with sockets. Names are looked up through sockets, too.
WATCHED = """
import json, shlex, sys
used = []
def watch(event, arguments):
    if event.startswith("socket.") and event != "socket.gethostname":
        family = arguments[1] if event == "socket.__new__" else None
        if family is None or int(family) != 1:  # 1: a socket between processes of this machine
            used.append([current, event, repr(arguments[1:])])
current = "import"
sys.addaudithook(watch)
from exhume.cli.app import main
for line in sys.stdin.read().splitlines():
    current = line
    sys.argv = ["exhume", *shlex.split(line)]
    try:
        main()
    except SystemExit as left:
        if left.code:
            raise RuntimeError(line)
print("SOCKETS " + json.dumps(used))
"""
FLOW = """gauge --params 600 --dim 10 --samples 3
width --samples 10 --dim 20 --separation 0.5
train rf --data PHOTOS --samples 3 --ratio 3 --out RUN
attack RUN --method heavy-ball --iterations 5
evaluate RUN
known RUN
count RUN --from 2 --to 3 --iterations 3 --budget 1s
report RUN
train rf --data faces --samples 2 --params 800 --out FOLDER/faces
train two-layer --data sphere --dim 4 --samples 2 --width 12 --steps 5 --out FOLDER/two-layer
attack FOLDER/two-layer --iterations 2 --budget 1s
rank FOLDER/head.safetensors --candidates FOLDER/embeddings.safetensors --out FOLDER/ranked
runs FOLDER
compare RUN --attacks heavy-ball --budget 1s
sweep FOLDER/grid.toml --engine here
audit RUN/features.safetensors --features FOLDER/V.safetensors --activation relu --budget 3s --out FOLDER/audit
scan FOLDER/net --sarif FOLDER/scan.sarif
audit FOLDER/net/after.safetensors --initial FOLDER/net/before.safetensors --budget 20s NETWORK
"""
GRID = """seeds = 1
[[victim]]
kind = "rf"
data = "sphere"
dim = 3
samples = 2
ratio = 4
[[victim]]
kind = "rf"
data = "PHOTOS"
samples = 2
ratio = 4
[[attack]]
method = "heavy-ball"
iterations = 3
"""


def make_photos(folder: Path) -> Path:
    photos = folder / "home of somebody" / "holiday"
    photos.mkdir(parents=True)
    stream = np.random.default_rng(0)
    for number in range(3):
        Image.fromarray(stream.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(photos / f"{number}.png")
    return photos


def write_audited(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    stream = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 3, generator=stream)
    save_file({"V": rows}, folder / "V.safetensors")
    embeddings = {"embeddings": torch.randn(40, 4, generator=stream), "member": torch.arange(40) % 2}
    save_file(embeddings, folder / "embeddings.safetensors")
    save_file({"weight": torch.randn(2, 4, generator=stream), "bias": torch.zeros(2)}, folder / "head.safetensors")
    save_file({"weights": (rows @ torch.randn(3, generator=stream)).clamp_min(0)}, folder / "features.safetensors")
    write_network(folder / "net")


def write_network(folder: Path) -> None:
    """Two states of a ReLU network that was trained on four records of 64 numbers, and these records."""
    import torch
    from safetensors.torch import save_file
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(64, 400), nn.ReLU(), nn.Linear(400, 2))
        inputs, labels = torch.randn(4, 64), torch.tensor([0, 1, 0, 1])
    folder.mkdir()
    save_file(model.state_dict(), folder / "before.safetensors")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    save_file(model.state_dict(), folder / "after.safetensors")
    save_file({"inputs": inputs}, folder.with_name("records.safetensors"))


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run with all its files in a folder with an absolute path, and the sockets that it took."""
    folder = tmp_path_factory.mktemp("somewhere")
    photos, run = make_photos(folder), folder / "run"
    write_audited(folder)
    (folder / "grid.toml").write_text(GRID.replace("PHOTOS", str(photos)))
    lines = FLOW.replace("RUN/features", "FOLDER/features").replace("PHOTOS", f"'{photos}'")
    lines = lines.replace("NETWORK", "--progress FOLDER/progress --out FOLDER/seen")
    lines = lines.replace("RUN", str(run)).replace("FOLDER", str(folder))
    return {"folder": folder, "run": run, "sockets": sockets_of(lines), "photos": photos}


def sockets_of(lines: str, watched: str = WATCHED) -> list[list[str]]:
    """What the hook saw while the commands ran, one per line."""
    done = subprocess.run(
        [sys.executable, "-c", watched],
        input=lines,
        capture_output=True,
        text=True,
        timeout=250,
        env=ENVIRONMENT,
        check=False,
    )
    assert "SOCKETS " in done.stdout, done.stderr
    found: list[list[str]] = json.loads(done.stdout.rpartition("SOCKETS ")[2])
    return found


def test_no_command_of_the_flow_opens_a_socket(flow: dict[str, Any]) -> None:
    assert flow["sockets"] == []


NO_NETWORK = """
import sys, time
def refuse(event, arguments):  # a hook that is asked after the watch, so that nothing leaves the machine
    if event in ("socket.getaddrinfo", "socket.connect", "socket.sendto"):
        raise OSError("no network in this test")
time.sleep = lambda seconds: None
"""


METHODS = """
import torch
from torch import nn
import exhume
def observed(body, shape, **more):
    model = nn.Sequential(*body, nn.ReLU(), nn.Linear(48, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(torch.rand(3, *shape)), torch.arange(3)).backward()
        optimiser.step()
    return exhume.observe(model, initial=before, input_shape=shape, **more)
torch.manual_seed(0)
recipe = exhume.Recipe(optimiser="sgd", rate=0.1, steps=5, labels=(0, 1, 2))
dense = observed([nn.Linear(8, 48)], (8,), training=recipe)
pictures = observed([nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(144, 48)], (1, 6, 6))
for current, seen, method in (
    ("replay", dense, exhume.Replay(iterations=3)),
    ("firing-patterns", dense, exhume.FiringPatterns(2)),
    ("dense-spans", pictures, exhume.DenseSpan(1, 5)),
):
    assert exhume.reconstruct(seen, method=method, samples=3).method == current
"""


def test_no_method_that_audits_networks_opens_a_socket() -> None:
    """Those that the commands of the flow do not make."""
    before, _, after = WATCHED.partition("from exhume.cli.app")
    assert sockets_of("", watched=before + METHODS + "print('SOCKETS ' + json.dumps(used))") == []
    assert after
    probe = "current = 'probe'\nimport socket\nsocket.socket().close()\n"
    assert sockets_of("", watched=before + probe + "print('SOCKETS ' + json.dumps(used))"), "the watch sees one"


SERVED = """
import json, sys
used = []
def watch(event, arguments):
    if event in ("socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"):
        used.append([event, repr(arguments[1] if event != "socket.getaddrinfo" else arguments[0])])
sys.addaudithook(watch)
from exhume.cli.app import main
try:
    main()
finally:
    print("SOCKETS " + json.dumps(used))
"""


def test_the_page_of_this_machine_listens_here_and_calls_nobody(tmp_path: Path) -> None:
    """Whatever its sockets do, from the start to Ctrl-C, with a file that was dropped in between."""
    pytest.importorskip("uvicorn", reason="no web framework: pip install 'exhume[web]'")
    write_network(tmp_path / "net")
    command = [sys.executable, "-c", SERVED, "serve", "--out", str(tmp_path / "audits"), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        file = (tmp_path / "net" / "after.safetensors").read_bytes()
        host = "/".join(address.split("/")[:3])
        own = {"Sec-Fetch-Site": "same-origin", "Origin": host}
        dropped = urllib.request.Request(f"{address}files?name=after.safetensors", file, own)
        for asked in (address, dropped):
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert answer.status == 200
        server.send_signal(signal.SIGINT)
        said, _ = server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()
    used = json.loads(said.rpartition("SOCKETS ")[2])
    assert [event for event, _ in used if event != "socket.bind"] == []
    assert {address.partition(",")[0] for _, address in used} == {"('127.0.0.1'"}


def test_data_fetch_is_the_one_that_does(tmp_path: Path) -> None:
    """The twin: the very same watch sees a socket where there is one."""
    watched = WATCHED.replace("from exhume.cli", "sys.addaudithook(refuse)\nfrom exhume.cli")
    watched = watched.replace("if left.code:", "if left.code != 1:")  # the download fails, as it should here
    fetch = f"data fetch cifar10 --data-dir '{tmp_path}'"
    seen = sockets_of(fetch, watched=NO_NETWORK + watched)
    assert [line for line, event, _ in seen if event == "socket.getaddrinfo"]
    assert {line for line, _, _ in seen} == {fetch}


def texts_of(run: Path) -> dict[str, str]:
    """Everything in a run that is for other eyes: its pages and its numbers, and what the page carries inside."""
    found = {
        path.name: path.read_text(encoding="utf-8")
        for path in run.iterdir()
        if path.suffix in (".json", ".html", ".csv")
    }
    found.pop("config.json", None)  # it says where the data are, so that the run can be made again
    for name, text in list(found.items()):
        for number, carried in enumerate(re.findall(r"base64,([A-Za-z0-9+/=]{200,})", text)):
            decoded = base64.b64decode(carried)
            found[f"{name}, part {number}"] = decoded.decode("utf-8", "replace")
    return found


REPORT = {"report.json", "report.html", "summary.json"}


@pytest.mark.parametrize(
    ("where", "there"), [("run", REPORT), ("audit", REPORT), ("seen", REPORT), ("grid", {"results.csv"})]
)
def test_reports_and_summaries_name_neither_paths_of_the_machine_nor_users(
    flow: dict[str, Any], where: str, there: set[str]
) -> None:
    texts = texts_of(flow["folder"] / where)
    assert there <= texts.keys()
    secrets = {str(flow["folder"]), str(flow["folder"].parent), "somebody", socket.gethostname(), str(Path.home())}
    secrets |= {f"/{getpass.getuser()}/"}
    for name, text in texts.items():
        assert [secret for secret in secrets if len(secret) > 2 and secret in text] == [], name


def numbers_in(value: Any) -> list[list[float]]:
    """Every list of numbers, however deep it lies."""
    if isinstance(value, dict):
        return [found for item in value.values() for found in numbers_in(item)]
    if not isinstance(value, list):
        return []
    own = [value] if value and all(isinstance(item, int | float) for item in value) else []
    return own + [found for item in value for found in numbers_in(item)]


def test_without_reveal_an_audit_that_recovered_everything_leaves_nothing_sharp(flow: dict[str, Any]) -> None:
    """Neither in its folder nor in what it says of its progress: no tensors, no row, no picture of more than 6 x 6."""
    folder = flow["folder"]
    assert json.loads((folder / "seen" / "summary.json").read_text())["samples_trusted"] == 4, "else it proves nothing"
    truth = load_file(folder / "records.safetensors")["inputs"]
    texts = [path for path in (folder / "seen").iterdir() if path.suffix in (".json", ".html")]
    assert {path.name for path in (folder / "seen").iterdir()} == {path.name for path in texts}
    for path in (*texts, folder / "progress" / "progress.json", folder / "scan.sarif"):
        text = path.read_text(encoding="utf-8")
        for row in truth.tolist():
            assert not [number for number in row if f"{number:.5f}" in text], path.name
        if path.suffix == ".json":
            assert [found for found in numbers_in(json.loads(text)) if len(found) >= 64] == []
        for carried in re.findall(r"iVBOR[A-Za-z0-9+/=]+", text):
            with Image.open(io.BytesIO(base64.b64decode(carried))) as picture:
                assert max(picture.size) <= 6, path.name


def test_what_an_audit_goes_on_from_is_for_the_owner_alone(flow: dict[str, Any]) -> None:
    progress = flow["folder"] / "progress"
    assert stat.S_IMODE(progress.stat().st_mode) == 0o700
    kept = list(progress.glob("*.safetensors"))
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept)


def test_no_repr_shows_a_record() -> None:
    import torch

    from exhume.attacks.foundation.state import State, Step
    from exhume.attacks.running.checkpoint import Checkpoint
    from exhume.auditing.records import Control
    from exhume.data.dataset import Dataset, Preparation
    from exhume.data.records import Records
    from exhume.experiments.truth import Truth
    from exhume.files import TensorFile
    from exhume.known import Known

    rows, one = torch.full((2, 3), 0.12345), torch.full((2,), 0.12345)
    state = State({"rows": rows}, {})
    none, plain = (
        torch.zeros(2, dtype=torch.int64),
        Preparation(torch.zeros(0), torch.ones(0), torch.ones(2), None, "none", "keep"),
    )
    shown = [
        *(state, Step(0, rows, 1.0, state), Checkpoint({}, state, (), {"rows": rows}), TensorFile({"a": rows}, {})),
        *(Known(rows), Control(rows, one), Records(rows, ("a", "b"))),
        *(Truth(rows, one, None, none, (), None, plain), Dataset(rows, one, (), none, None, plain, "x")),
    ]
    assert [type(thing).__name__ for thing in shown if "0.123" in repr(thing)] == []


def tensors_in(kind: type) -> list[str]:
    """Fields that hold numbers of tensors, by their annotations; a function of tensors holds none."""
    named = {name: re.sub(r"Callable\[.*\]", "", str(hint)) for name, hint in inspect.get_annotations(kind).items()}
    return [name for name, hint in named.items() if re.search("Tensor|ndarray", hint) and "ClassVar" not in hint]


WRITTEN_BY_HAND = {"LayerStates", "HeldOut"}
"""What these say of themselves has tests of its own."""


def shows_its_tensors(kind: type) -> bool:
    """Whether the repr of such an object would print numbers, tried with an object that has nothing else."""
    import torch

    held = [name for base in kind.__mro__ for name in tensors_in(base)]
    if not held or issubclass(kind, tuple):
        return bool(held)
    if issubclass(kind, Shown):  # what Shown says has tests of its own, with whole results; a dataclass may replace it
        return "__repr__" in vars(kind)
    if kind.__name__ in WRITTEN_BY_HAND:
        return False
    thing: Any = object.__new__(kind)
    for field in dataclasses.fields(thing):
        value = torch.full((2,), 0.12345) if field.name in held else None
        object.__setattr__(thing, field.name, value)
    return "0.123" in repr(thing)


def kinds_of_data() -> dict[str, type]:
    """Every dataclass and every named tuple of the packages."""
    modules = [
        importlib.import_module(found.name)
        for package in (exhume, exhume_papers)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not found.name.endswith("__main__")
    ]
    return {
        f"{module.__name__}.{name}": kind
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type) and kind.__module__ == module.__name__
        if dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    }


def test_no_dataclass_prints_the_numbers_of_a_tensor() -> None:
    """The rule: a dataclass that holds tensors says repr=False, for itself or for these fields, or is Shown.

    A traceback with locals, a log line or a notebook prints an object that nobody meant to print."""
    kinds = kinds_of_data()
    assert len([name for name, kind in kinds.items() if tensors_in(kind)]) > 130, "else the walk has missed them"
    assert [name for name, kind in kinds.items() if shows_its_tensors(kind)] == []


def test_a_dataclass_that_would_print_them_is_seen() -> None:
    from torch import Tensor

    @dataclass(frozen=True)
    class Careless:
        count: int
        rows: tuple[Tensor, ...]

    @dataclass(frozen=True)
    class Below(Careless):
        more: int

    @dataclass(frozen=True, repr=False)
    class Careful:
        rows: Tensor

    class Bare(NamedTuple):
        rows: Tensor

    assert [shows_its_tensors(kind) for kind in (Careless, Below, Bare)] == [True] * 3
    assert not shows_its_tensors(Careful)


def test_the_configuration_alone_says_where_the_data_are(flow: dict[str, Any]) -> None:
    assert json.loads((flow["run"] / "config.json").read_text())["data"]["name"] == str(flow["photos"])
    assert "holiday" in json.loads((flow["run"] / "summary.json").read_text())["data"]


def test_tensor_files_of_a_run_carry_no_path(flow: dict[str, Any]) -> None:
    for path in flow["run"].glob("*.safetensors"):
        assert b"somebody" not in path.read_bytes(), path.name


def test_files_with_data_are_the_owner_s_and_others_follow_the_umask(flow: dict[str, Any]) -> None:
    umask = os.umask(0)
    os.umask(umask)
    seen = {}
    for path in flow["run"].iterdir():
        mode = stat.S_IMODE(path.stat().st_mode)
        kind = read_header(path).exhume["kind"] if path.suffix == ".safetensors" else ""
        expected = 0o600 if kind in PRIVATE_KINDS else 0o666 & ~umask
        assert mode == expected, f"{path.name}: {mode:o}"
        seen[path.name] = mode
    assert seen["truth.safetensors"] == seen["known.safetensors"] == seen["reconstruction.safetensors"] == 0o600
    assert stat.S_IMODE(flow["run"].stat().st_mode) == 0o777 & ~umask
    assert read_tensors(flow["run"] / "truth.safetensors", "truth").tensors


def test_a_ray_sweep_sends_no_usage_statistics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []

    def init(**options: object) -> None:
        seen.append(os.environ.get("RAY_USAGE_STATS_ENABLED"))

    ray = SimpleNamespace(init=init, is_initialized=lambda: False, shutdown=lambda: None)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
    engine = ray_engine.RayEngine(tmp_path, workers=1, threads=1, address=None)
    engine.open()
    assert seen == ["0"]


def test_nothing_but_the_download_and_the_page_of_this_machine_imports_what_opens_sockets() -> None:
    source = Path(sys.modules["exhume"].__file__ or "").parents[1]
    paths = [path for package in ("exhume", "exhume_papers") for path in (source / package).rglob("*.py")]
    found = {str(path.relative_to(source)) for path in paths if NETWORK & imported(path.read_text())}
    assert found == {"exhume_papers/data/download.py", "exhume/serving/server.py"}


NETWORK = {"socket", "urllib.request", "http", "http.client", "requests", "httpx", "aiohttp", "ftplib", "smtplib"}


def imported(source: str) -> set[str]:
    """Every module that a source may import, wherever it says so: `from a import b` may be a.b."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize(
    "line",
    ["import socket", "from urllib import request", "import urllib.request as r", "if 1:\n    from http import client"],
)
def test_every_way_to_import_them_is_seen(line: str) -> None:
    assert NETWORK & imported(line)
