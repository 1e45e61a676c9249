"""What lies around exhume: other people's files, pipes, names with escapes, a second command at work."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exhume.attacks.running.loop import _fingerprint
from exhume.cli.app import main
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.run import RunFolder
from exhume.features.rows import DrawnRows, HeldRows, hold
from exhume.files import read_any_tensors, read_tensors
from exhume.leftovers import Claim, remove_leftovers
from exhume.observing.of_features import observe_features
from exhume.report.page import write_report
from exhume.strict_json import parse_json
from exhume.tensor_header import read_header
from exhume_papers.sweeps.spec_file import plan_spec
from exhume_papers.sweeps.sweep_folder import SweepFolder

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ENDLESS = ("--method", "heavy-ball", "--step", "1e-9", "--iterations", "10000000")  # never converges


def call(*arguments: str | Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["exhume", *map(str, arguments)])
        main()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    with pytest.raises(SystemExit) as left:
        call(*arguments)
    said = capsys.readouterr().err.splitlines()
    assert left.value.code in (1, 2)
    assert "fault" not in said[-1]
    return said[-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures in a run that was attacked."""
    run = tmp_path_factory.mktemp("runs") / "a"
    call("train", "rf", "--data", "faces", "--samples", "2", "--side", "5", "--params", "200", "--out", run)
    call("attack", run, "--method", "heavy-ball", "--iterations", "3")
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_a_sweep_leaves_files_of_others_and_of_the_living_alone(tmp_path: Path) -> None:
    for place in (".", "victims/abc", "runs/.def.part"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / ".notes.tmp").write_text("somebody's")
        (tmp_path / place / ".link.1234abcd.exhume.tmp").symlink_to(tmp_path / "victims")
    living = Claim.beside(tmp_path / "runs" / "ghi", folder=True)
    SweepFolder(tmp_path).tidy()
    assert living.path.exists()
    assert len(list(tmp_path.rglob(".notes.tmp"))) == 3
    assert (tmp_path / "victims" / "abc").is_dir()
    living.release()


def test_a_pipe_with_the_name_of_a_leftover_holds_nobody_up(tmp_path: Path) -> None:
    pipe = tmp_path / ".report.html.1234abcd.exhume.tmp"
    os.mkfifo(pipe)
    timer = threading.Timer(10, lambda: os.close(os.open(pipe, os.O_RDWR)))  # lets whoever waits for a writer go on
    timer.daemon = True
    timer.start()
    began = time.monotonic()
    remove_leftovers(tmp_path)
    timer.cancel()
    assert time.monotonic() - began < 9


CODE = """[[victim]]
kind = ["rf", "evil:make"]
data = "sphere"
dim = 3
samples = 2
"""


def test_a_spec_runs_no_code_that_nobody_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    (tmp_path / "grid.toml").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"line 2.*evil:make.*--model evil:make"):
        plan_spec(tmp_path / "grid.toml")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ExhumeError) as other:  # allowed: it is the options of rf that are missing
        plan_spec(tmp_path / "grid.toml", code=("evil:make",))
    assert "--model" not in str(other.value)


@pytest.mark.parametrize(
    "line",
    [
        "gauge PIPE.safetensors",
        "audit PIPE.safetensors --out OUT --budget 1s",
        "audit PIPE.onnx --out OUT --budget 1s",
        "audit PIPE.safetensors --features PIPE.safetensors --activation relu --out OUT",
        "scan PIPE.safetensors",
        "sweep PIPE.toml --check",
        "report PIPE.json",
        "rank PIPE.safetensors --candidates PIPE.safetensors --out OUT",
    ],
)
def test_a_pipe_in_place_of_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    words = [
        word.replace("PIPE", str(tmp_path / "pipe")).replace("OUT", str(tmp_path / "out")) for word in line.split()
    ]
    for word in words:
        if "/pipe." in word and not Path(word).exists():
            os.mkfifo(word)
    # somebody who would wait for a reader: a command that opens the pipe would hang, and this says so instead
    timer = threading.Timer(60, lambda: [Path(word).write_text("") for word in words if "/pipe." in word])
    timer.daemon = True
    timer.start()
    began = time.monotonic()
    said = refused(capsys, *words)
    timer.cancel()
    assert time.monotonic() - began < 30
    assert "expected" in said


def test_not_a_number_in_the_trace_is_refused(run: Path) -> None:
    trace = (run / "trace.csv").read_text().splitlines()
    (run / "trace.csv").write_text("\n".join([*trace, "4,nan,1.0,1.0"]) + "\n")
    with pytest.raises(ExhumeError, match=r"trace.csv, found: 'nan'"):
        write_report(RunFolder(run), reveal=False)


def test_files_of_two_attacks_are_not_taken_for_one(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    call("attack", other, "--method", "heavy-ball", "--iterations", "2")
    write_report(RunFolder(other), reveal=False)
    for name in ("summary.json", "trace.csv"):
        mixed = Path(shutil.copytree(run, tmp_path / f"mixed {name}"))
        shutil.copy(other / name, mixed / name)
        with pytest.raises(ExhumeError, match="files of one attack"):
            write_report(RunFolder(mixed), reveal=False)


def test_one_command_at_a_time_writes_into_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with RunFolder(run).alone("the first"):
        for line in (
            ("attack", run, "--method", "heavy-ball", "--iterations", "1"),
            ("evaluate", run),
            ("report", run),
        ):
            assert "another command at work there" in refused(capsys, *line)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    call("evaluate", run)


def test_sigterm_keeps_what_was_found(run: Path) -> None:
    (run / "reconstruction.safetensors").unlink()
    command = [sys.executable, "-m", "exhume", "attack", str(run), *ENDLESS]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as attack:
        try:
            until = time.monotonic() + 100
            while not holds(attack.pid, run) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(1.0)
            assert not (run / "checkpoint.safetensors").exists(), "20 s are not over"
            attack.send_signal(signal.SIGTERM)
            _, said = attack.communicate(timeout=60)
        finally:
            attack.kill()
    assert attack.returncode == 130
    assert b"the same command continues" in said
    assert (run / "checkpoint.safetensors").exists()
    assert RunFolder(run).reconstruction().iterations > 0


IN_THE_BACKGROUND = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what a script leaves in the background
import exhume.cli, exhume.cli.app
def work(began):
    print("at work", flush=True)
    time.sleep(100)
exhume.cli.app.main = work
exhume.cli.main()
"""


def test_sigterm_ends_a_command_that_a_script_left_in_the_background() -> None:
    command = [sys.executable, "-c", IN_THE_BACKGROUND]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"at work\n"
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (130, b"exhume: interrupted\n")


def holds(process: int, folder: Path) -> bool:
    """Whether it has the folder open, which it does to lock it."""
    names = list(Path(f"/proc/{process}/fd").iterdir())
    return any(name.is_symlink() and name.readlink() == folder for name in names)


def test_every_row_tells_one_v_from_another() -> None:
    rows = torch.randn(5000, 3, generator=torch.Generator().manual_seed(0))
    other = rows.clone()
    other[4321, 1] += 1e-6
    weights = torch.ones(5000)
    ours, theirs = (_fingerprint(observe_features(v, weights, "relu")) for v in (rows, other))
    assert ours != theirs
    drawn = DrawnRows(seed=1, p=700, d=3)
    assert drawn.telltale() != DrawnRows(seed=2, p=700, d=3).telltale()
    assert hold(drawn).telltale() == HeldRows(hold(drawn).values.clone()).telltale()


def test_runs_prints_no_escapes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = run.rename(run.with_name("\x1b[2J\x1b]0;title\x07run"))
    summary = json.loads((named / "summary.json").read_text())
    (named / "summary.json").write_text(json.dumps(summary | {"method": "\x1b[31mred\u202e"}))
    for extra in ((), ("--compare",), ("--by", "method", "--value", "loss")):
        call("runs", named.parent, *extra)
    shown = capsys.readouterr().out
    assert "\\x1b[31mred" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_no_sharp_picture_outlives_a_report_without_reveal(run: Path) -> None:
    write_report(RunFolder(run), reveal=True)
    sharp = (run / "pairs.png").read_bytes()
    (run / "truth.safetensors").unlink()  # from now on there are candidates alone
    (run / "candidates.png").write_bytes(sharp)
    write_report(RunFolder(run), reveal=False)
    assert not (run / "pairs.png").exists()
    assert (run / "candidates.png").read_bytes() != sharp


def with_a_key_twice(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, path, metadata={"exhume": json.dumps({"kind": "truth"})})
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].rstrip()
    again = header[:-1] + b',"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    path.write_bytes(len(again).to_bytes(8, "little") + again + content[8 + length :])


def test_a_key_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with_a_key_twice(path, {"a": torch.zeros(1)})
    for read in (read_header, lambda p: read_tensors(p, "truth"), lambda p: read_any_tensors(p, "missing")):
        with pytest.raises(ExhumeError, match="'a' twice"):
            read(path)
    with pytest.raises(ValueError, match="twice"):
        parse_json('{"a": {"b": 1, "c": 2, "b": 1}}')


@pytest.mark.parametrize("method", ["split-newton", "heavy-ball"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_single_weight_is_inconclusive(method: str, outputs: int) -> None:
    from exhume import reconstruct

    seen = observe_features(torch.ones(1, 4), torch.ones(outputs, 1), "relu")
    found = reconstruct(seen, method=method, samples=2, iterations=5)
    assert found.outcome.value in ("not_converged", "spurious")
