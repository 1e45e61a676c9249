"""A disk that is full, one that turns read-only, Ctrl-C pressed twice: one line, the right exit code, and on it goes.

    python soak/faults.py --json faults.json

The disks are small tmpfs mounts of their own, which takes root; without it these faults are left out, with the reason.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from contents import contents, differences, temporaries, unreadable
from forked import warm_up
from kill_scenes import Process, Scene, make_store, scenes
from kills import COMPLAINTS, LONGEST_SECONDS, Calm, start, undisturbed
from outcome import finish

DISK = "32m"
ATTEMPTS = 4


@dataclass
class Case:
    """What became of one fault: `faults` lists the promises that were not kept."""

    name: str
    exit_code: int | None = None
    said: str = ""
    skipped: str = ""
    faults: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    began = time.monotonic()
    warm_up()
    with tempfile.TemporaryDirectory(prefix="exhume-faults-") as name:
        place = Path(name).resolve()
        (place / "store").mkdir()
        make_store(place / "store")
        cases = all_cases(place, random.Random(asked.seed))
    result = summary(cases, time.monotonic() - began)
    return finish(
        {**result, "seed": asked.seed},
        asked.json,
        f"{result['done']} faults, {result['skipped']} left out: {len(result['faults'])} promises broken",
    )


def summary(cases: Sequence[Case], seconds: float) -> dict[str, Any]:
    return {
        "done": sum(not case.skipped for case in cases),
        "skipped": sum(bool(case.skipped) for case in cases),
        "faults": [f"{case.name}: {fault}" for case in cases for fault in case.faults],
        "cases": [asdict(case) for case in cases],
        "seconds": round(seconds, 1),
    }


def all_cases(place: Path, chance: random.Random) -> list[Case]:
    known = {scene.name: scene for scene in scenes(place / "store")}
    audits = tuple(name for name in known if name.startswith("audit"))
    full = ("train", "attack, Newton", "sweep in one process", *audits)
    halfway = ("train", "attack, gradient", "sweep in one process")
    calm = {name: undisturbed(known[name], place) for name in dict.fromkeys((*full, *halfway))}
    cases = []
    for name in full:
        cases.append(_on_a_disk(f"disk full: {name}", place, full_disk, known[name], calm[name]))
    for name in halfway[:2]:  # a sweep holds its lock open, and no disk turns read-only then
        cases.append(_on_a_disk(f"read-only: {name}", place, read_only, known[name], calm[name]))
    for number, name in enumerate((*halfway, *halfway), start=1):
        cases.append(pressed_twice(f"Ctrl-C twice, {number}: {name}", known[name], place, calm[name], chance))
    return cases


def _on_a_disk(name: str, place: Path, fault: Callable[[Scene, Path, Calm], Case], scene: Scene, calm: Calm) -> Case:
    disk = Path(tempfile.mkdtemp(dir=place))
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", disk], check=True, capture_output=True)
    except (subprocess.CalledProcessError, FileNotFoundError) as problem:
        return Case(name, skipped=f"no tmpfs can be mounted here ({problem})")
    try:
        case = fault(scene, disk, calm)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True, capture_output=True)
    case.name = name
    _tell(case)
    return case


def _tell(case: Case) -> None:
    print(f"{case.name}: {case.said}", *case.faults, sep="\n  ", flush=True)


def full_disk(scene: Scene, disk: Path, calm: Calm) -> Case:
    """There is room for 8 kB, then for everything."""
    folder = _prepared(scene, disk)
    filler = disk / "filler"
    _fill(disk, filler)
    case = _failed(scene, start(scene, folder, disk.parent / "notes"), folder)
    filler.unlink()
    case.faults += _resumed(scene, folder, disk.parent / "notes", calm)
    return case


def read_only(scene: Scene, disk: Path, calm: Calm) -> Case:
    """The disk becomes read-only once there is a checkpoint, then writable again."""
    for attempt in range(ATTEMPTS):
        folder = _prepared(scene, disk / str(attempt))
        process = _started(scene, folder, disk.parent / "notes")
        while process.poll() is None and not _remounted(disk, "ro"):
            time.sleep(0.001)  # refused while a file is being written
        case = _failed(scene, process, folder)
        _remounted(disk, "rw")
        if case.exit_code != 0:  # otherwise it was done before
            case.faults += _resumed(scene, folder, disk.parent / "notes", calm)
            return case
    return Case("", faults=["it was done each time before the disk was read-only"])


def pressed_twice(name: str, scene: Scene, place: Path, calm: Calm, chance: random.Random) -> Case:
    """Two presses, up to a fifth of a second apart, once there is a checkpoint."""
    case = Case(name, faults=["it was done each time before Ctrl-C was pressed"])
    for _ in range(ATTEMPTS):
        folder = _prepared(scene, Path(tempfile.mkdtemp(dir=place)))
        process = _started(scene, folder, folder.parent / "notes")
        for pause in (chance.uniform(0.0, 0.1), chance.uniform(0.0, 0.2)):
            time.sleep(pause)
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        ended = _failed(scene, process, folder, expected=130)
        if ended.exit_code != 0:
            case = ended
            case.name = name
            case.faults += _resumed(scene, folder, folder.parent / "notes", calm)
            break
    _tell(case)
    return case


def _started(scene: Scene, folder: Path, notes: Path) -> Process:
    """The command at work: there is a checkpoint, or it is done already."""
    process = start(scene, folder, notes)
    while process.poll() is None:
        if [path for path in folder.rglob("*.safetensors") if "checkpoint" in path.name or "training" in path.name]:
            break
        time.sleep(0.005)
    return process


def _prepared(scene: Scene, parent: Path) -> Path:
    folder = parent / "f"
    folder.mkdir(parents=True)
    scene.prepare(folder)
    return folder


def _fill(disk: Path, filler: Path) -> None:
    free = shutil.disk_usage(disk).free
    with filler.open("wb") as file:
        file.write(bytes(max(0, free - 8192)))


def _remounted(disk: Path, how: str) -> bool:
    command = ["mount", "-o", f"remount,{how}", str(disk)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _failed(scene: Scene, process: Process, folder: Path, expected: int = 1) -> Case:
    try:
        _, words = process.communicate(timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Case("", faults=["did not end"])
    lines = [line for line in words.decode(errors="replace").splitlines() if line.strip()]
    # a sweep also tells on standard error how far it is
    complaints = [line for line in lines if line.startswith(COMPLAINTS)]
    case = Case("", process.returncode, lines[-1] if lines else "")
    if process.returncode != expected:
        case.faults.append(f"exit code {process.returncode}, expected {expected}: {case.said}")
    if any("Traceback" in line for line in lines):
        case.faults.append("a traceback: " + " / ".join(lines[-4:]))
    elif len(complaints) != 1:
        case.faults.append(f"{len(complaints)} complaints instead of one: " + " / ".join(lines))
    case.faults += [f"half a file: {name}" for name in unreadable(folder)]
    return case


def _resumed(scene: Scene, folder: Path, notes: Path, calm: Calm) -> list[str]:
    retry = ["--retry-failed"] if scene.name.startswith("sweep") else []
    process = start(replace(scene, command=lambda f: scene.command(f) + retry), folder, notes)
    _, words = process.communicate(timeout=LONGEST_SECONDS)
    if process.returncode != 0:
        return [f"could not be resumed: {words.decode(errors='replace')[-300:]}"]
    faults = [f"a temporary file is left: {name}" for name in temporaries(folder)]
    return faults + [
        f"differs from an undisturbed run: {name}" for name in differences(contents(folder), calm.contents)
    ]


if __name__ == "__main__":
    sys.exit(main())
