"""Odd surroundings: alphabets, umasks, no home, spaces in paths, a closed screen, a limit on files, a second command.

    python soak/surroundings.py --json surroundings.json

Each is a process of its own. It has to end well, or with one line and a promised exit code; never with a traceback, and
never with half a file under a final name.
"""

import argparse
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contents import temporaries, unreadable
from faults import Case, summary
from kill_scenes import write_audited
from outcome import finish

LONGEST_SECONDS = 200.0
ATTACK = ("--method", "heavy-ball", "--iterations", "5")
ENDLESS = ("--method", "heavy-ball", "--step", "1e-9", "--iterations", "10000000")
PRIVATE = ("truth.safetensors", "reconstruction.safetensors", "snapshots.safetensors", "checkpoint.safetensors")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write what was found")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="exhume-surroundings-") as name:
        place = Path(name).resolve()
        made = exhume(["train", "rf", "--data", "faces", "--samples", "2", "--side", "5", "--params", "200", "--out",
                       place / "victim"])  # fmt: skip
        if made.returncode != 0:
            raise RuntimeError(f"expected a victim, found {made.stderr.decode()[-300:]}")
        write_audited(place / "audited")
        cases = [told(case(place)) for case in CASES]
    result = summary(cases, time.monotonic() - began)
    return finish(result, asked.json, f"{result['done']} odd surroundings: {len(result['faults'])} promises broken")


def told(case: Case) -> Case:
    print(f"{case.name}: {case.exit_code} {case.said}", *case.faults, sep="\n  ", flush=True)
    return case


def exhume(
    words: Sequence[object], environment: dict[str, str] | None = None, **options: Any
) -> "subprocess.CompletedProcess[bytes]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} if environment is None else environment
    command = [sys.executable, "-m", "exhume", *map(str, words)]
    given = {"capture_output": True, "timeout": LONGEST_SECONDS, **options}
    return subprocess.run(command, env=environment, check=False, **given)


def judged(name: str, done: "subprocess.CompletedProcess[bytes]", run: Path, codes: tuple[int, ...] = (0,)) -> Case:
    words = (done.stderr or b"").decode(errors="replace")
    lines = [line for line in words.splitlines() if line.strip()]
    case = Case(name, done.returncode, lines[-1] if lines else "")
    if done.returncode not in codes:
        case.faults.append(f"ended with {done.returncode}, not with {' or '.join(map(str, codes))}")
    if "Traceback" in words or "found a fault" in words:
        case.faults.append(f"a traceback or a fault: {lines[-1]}")
    if done.returncode not in (0, 130) and len(lines) != 1:
        case.faults.append(f"{len(lines)} lines instead of one")
    case.faults += [f"half a file: {broken}" for broken in unreadable(run)]
    return case


def copied(place: Path, name: str) -> Path:
    return Path(shutil.copytree(place / "victim", Path(tempfile.mkdtemp(dir=place)) / name))


def in_environment(
    name: str, change: Callable[[dict[str, str]], object], folder: str = "run", codes: tuple[int, ...] = (0,)
) -> Callable[[Path], Case]:
    def try_it(place: Path) -> Case:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        change(environment)
        run = copied(place, folder)
        case = judged(name, exhume(["attack", run, *ATTACK], environment), run, codes)
        for words in (["evaluate", run], ["report", run], ["runs", run.parent], ["scan", run.parent]):
            case.faults += judged(name, exhume(words, environment), run, codes).faults
        out = run.with_name(f"{folder} audited")
        audited = exhume(["audit", *_weights(place / "audited"), "--out", out], environment)
        case.faults += judged(name, audited, out, codes).faults
        return case

    return try_it


def _weights(folder: Path) -> list[object]:
    """What an audit is given in a file of its own, three samples behind it."""
    given = (folder / "w.safetensors", "--features", folder / "V.safetensors", "--activation", "relu")
    return [*given, "--initial", "zero", "--budget", "30s"]


def with_umask(mask: int) -> Callable[[Path], Case]:
    def try_it(place: Path) -> Case:
        run = copied(place, "run")
        case = judged(f"umask {mask:03o}", exhume(["attack", run, *ATTACK], umask=mask), run)
        case.faults += judged("", exhume(["report", run], umask=mask), run).faults
        for path in run.iterdir():
            mode = stat.S_IMODE(path.stat().st_mode)
            if path.name in PRIVATE and mode & 0o077:
                case.faults.append(f"{path.name} can be read by others: {mode:o}")
            if path.name == "report.html" and mode != 0o666 & ~mask:
                case.faults.append(f"the report does not follow the umask: {mode:o}")
        return case

    return try_it


def closed_screen(place: Path) -> Case:
    """Standard output is closed, or a pipe that nobody reads."""
    run = copied(place, "run")
    code = "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-m", "exhume", "attack", str(run), *ATTACK]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment,
        stderr=subprocess.PIPE,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    case = judged("standard output closed", done, run, (0, 1))
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        words, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=LONGEST_SECONDS
    )
    os.close(writer)
    lines = done.stderr.decode().splitlines()
    if done.returncode not in (0, 1) or any("Traceback" in line for line in lines):
        case.faults.append(f"a pipe that nobody reads: ended with {done.returncode}: {lines[-1:]}")
    if not (run / "reconstruction.safetensors").exists():
        case.faults.append("what was found is not there")
    return case


def small_files(place: Path) -> Case:
    """No file may be larger than 8 kB (RLIMIT_FSIZE); then any may."""
    run = copied(place, "run")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    case = judged("a limit of 8 kB per file", exhume(["report", run], preexec_fn=limit), run, (1,))
    attacked = judged("", exhume(["attack", run, *ATTACK], preexec_fn=limit), run, (0, 1))
    again = judged("", exhume(["attack", run, *ATTACK]), run)
    page = judged("", exhume(["report", run], preexec_fn=limit), run, (1,))
    whole = judged("", exhume(["report", run]), run)
    case.said = page.said
    case.faults += attacked.faults + again.faults + page.faults + whole.faults
    if temporaries(run):
        case.faults.append(f"left {temporaries(run)}")
    return case


def two_at_once(place: Path) -> Case:
    """A second command on a run that is being attacked is refused; the first one is not disturbed."""
    run = copied(place, "run")
    words = [sys.executable, "-m", "exhume", "attack", str(run), *ENDLESS]
    first = subprocess.Popen(
        words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        until = time.monotonic() + LONGEST_SECONDS
        while first.poll() is None and not _open_in(first.pid, run) and time.monotonic() < until:
            time.sleep(0.05)
        case = judged("a second attack on the same run", exhume(["attack", run, *ATTACK]), run, (2,))
        for command in ("report", "evaluate"):
            case.faults += judged("", exhume([command, run]), run, (2,)).faults
        first.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=LONGEST_SECONDS)
    finally:
        first.kill()
    if first.returncode != 130 or b"continues" not in said:
        case.faults.append(f"SIGTERM: ended with {first.returncode}: {said.decode()[-200:]}")
    if not (run / "checkpoint.safetensors").exists():
        case.faults.append("SIGTERM lost the checkpoint")
    case.faults += judged("", exhume(["report", run]), run).faults
    return case


def _open_in(process: int, folder: Path) -> bool:
    names = list(Path(f"/proc/{process}/fd").iterdir())
    return any(name.is_symlink() and name.readlink() == folder for name in names)


CASES: tuple[Callable[[Path], Case], ...] = (
    in_environment("LC_ALL=C", lambda e: e.update(LC_ALL="C")),
    in_environment("LC_ALL=POSIX, ASCII alone", lambda e: e.update(LC_ALL="POSIX", PYTHONIOENCODING="ascii")),
    in_environment("a locale that does not exist", lambda e: e.update(LC_ALL="xx_YY.UTF-16", LANG="nowhere")),
    in_environment(
        "no UTF-8 mode, Latin-1", lambda e: e.update(LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="latin-1")
    ),
    in_environment("HOME unset", lambda e: e.pop("HOME", None)),
    in_environment("HOME read-only", lambda e: e.update(HOME="/proc")),
    in_environment("no PATH, TMPDIR nowhere", lambda e: (e.pop("PATH", None), e.update(TMPDIR="/nowhere"))),
    in_environment("TERM unknown, COLUMNS 0", lambda e: e.update(TERM="what", COLUMNS="0", LINES="-1")),
    in_environment("spaces and quotes", lambda e: None, "a run 'of' \"mine\" & $HOME; rm"),
    in_environment("unicode", lambda e: None, "прогон 実行 \u202e🦴"),
    in_environment("unicode in an ASCII locale", lambda e: e.update(LC_ALL="C", PYTHONIOENCODING="ascii"), "прогон 🦴"),
    in_environment("a new line and an escape", lambda e: None, "a\nrun\x1b[31m"),
    in_environment(
        "bytes that are no text", lambda e: None, os.fsdecode(b"run \xff\xfe"), (0, 1)
    ),  # safetensors refuses
    with_umask(0o000),
    with_umask(0o077),
    with_umask(0o027),
    closed_screen,
    small_files,
    two_at_once,
)


if __name__ == "__main__":
    sys.exit(main())
