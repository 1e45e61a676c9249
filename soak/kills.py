"""Kills exhume's commands at random moments, runs them again until they are done, and looks at what is there then.

    python soak/kills.py --kills 100 --json kills.json

Half of the kills come at a random time, from outside, counted from when everything is imported and the command begins
to work; the others right before a random operation on a file, where a clock would hardly ever strike. A kill is counted
only where the process was ended by it: any other end but a good one is a fault. After each kill every file with a final
name has to be whole, and a folder that a command makes is complete or absent. In the end everything equals an
undisturbed run but for times and memory, and no temporary file is left, in the folder or beside it.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contents import contents, differences, temporaries, unreadable
from forked import Forked, warm_up
from kill_scenes import ALONE, Process, Scene, make_store, scenes
from outcome import finish

LONGEST_SECONDS = 300.0
MOST_KILLS_A_RUN = 4
MOST_VAIN_RUNS = 20
"""Runs of a scene in a row that were done before any kill: the harness then gives up, rather than try for ever."""
REFUSED = 2  # the exit code for a folder that is there already
COMPLAINTS = ("exhume: ", "interrupted")


@dataclass
class Tally:
    """What became of one scene."""

    name: str
    kills: int = 0
    at_files: int = 0
    resumed_runs: int = 0
    temporaries_after_kills: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Calm:
    """An undisturbed run: what it leaves, how long it works, how many operations on files it needs."""

    contents: dict[str, Any]
    seconds: float
    operations: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="the scene of this name, or those whose names begin so")
    parser.add_argument("--json", type=Path, help="where to write the counts")
    asked = parser.parse_args()
    began = time.monotonic()
    warm_up()
    with tempfile.TemporaryDirectory(prefix="exhume-kills-") as name:
        place = Path(name).resolve()
        (place / "store").mkdir()
        make_store(place / "store")
        everything = scenes(place / "store")
        named = [scene for scene in everything if scene.name == asked.only]
        chosen = named or [scene for scene in everything if scene.name.startswith(asked.only or "")]
        tallies = [
            harass(scene, kills, place, random.Random(f"{asked.seed} {scene.name}"))
            for scene, kills in zip(chosen, shares(asked.kills, chosen), strict=True)
        ]
    result = summary(tallies, time.monotonic() - began)
    return finish(
        {**result, "seed": asked.seed},
        asked.json,
        f"{result['kills']} kills, {result['resumed_runs']} runs resumed: {len(result['faults'])} faults",
    )


def shares(kills: int, chosen: Sequence[Scene]) -> list[int]:
    """Kills for each scene, at least one, about by their shares, as many in all as asked for (or one each)."""
    whole = sum(scene.share for scene in chosen)
    counts = [max(1, int(kills * scene.share / whole)) for scene in chosen]
    for index in range(max(0, kills - sum(counts))):
        counts[index % len(counts)] += 1
    return counts


def summary(tallies: Sequence[Tally], seconds: float) -> dict[str, Any]:
    return {
        "kills": sum(tally.kills for tally in tallies),
        "at_files": sum(tally.at_files for tally in tallies),
        "resumed_runs": sum(tally.resumed_runs for tally in tallies),
        "temporaries_after_kills": sum(tally.temporaries_after_kills for tally in tallies),
        "faults": [f"{tally.name}: {fault}" for tally in tallies for fault in tally.faults],
        "scenes": [asdict(tally) for tally in tallies],
        "seconds": round(seconds, 1),
    }


def harass(scene: Scene, kills: int, place: Path, chance: random.Random) -> Tally:
    tally, vain = Tally(scene.name), 0
    calm = undisturbed(scene, place, fresh=True)  # the forks are held against a process that was started afresh
    while tally.kills < kills and len(tally.faults) < 5 and vain < MOST_VAIN_RUNS:
        with tempfile.TemporaryDirectory(dir=place) as name:
            folder = Path(name) / "f"
            folder.mkdir()
            scene.prepare(folder)
            most = min(chance.randint(1, MOST_KILLS_A_RUN), kills - tally.kills)
            killed = sum(_kill_once(scene, folder, calm, chance, tally) for _ in range(most))
            vain = 0 if killed else vain + 1
            if killed:
                tally.resumed_runs += 1
                tally.faults += _finish(scene, folder, calm)
    if vain >= MOST_VAIN_RUNS:
        tally.faults.append(f"was done before any kill, {vain} times in a row")
    print(f"{scene.name}: {tally.kills} kills, {len(tally.faults)} faults", *tally.faults, sep="\n  ", flush=True)
    return tally


def undisturbed(scene: Scene, place: Path, fresh: bool = False) -> Calm:
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder, notes = Path(name) / "f", Path(name) / "notes"
        folder.mkdir()
        scene.prepare(folder)
        process = start(scene, folder, notes, fresh=fresh)
        _, words = process.communicate(timeout=LONGEST_SECONDS)
        ended = time.time()
        if process.returncode != 0:
            raise RuntimeError(f"{scene.name} fails undisturbed: {words.decode(errors='replace')[-500:]}")
        return Calm(contents(folder), ended - (notes / "begun.0").stat().st_mtime, int((notes / "count").read_text()))


def start(scene: Scene, folder: Path, notes: Path, die_at: int | None = None, fresh: bool = False) -> Process:
    """The command of a scene; `notes` is where it tells how far it got, and holds nothing of an earlier one."""
    shutil.rmtree(notes, ignore_errors=True)
    notes.mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SOAK_FOLDER": str(folder), "SOAK_NOTES": str(notes)}
    if die_at is not None:
        environment["SOAK_DIE_AT"] = str(die_at)
    if scene.method:
        environment["SOAK_METHOD"] = scene.method
    if scene.start == ALONE and not scene.starts_processes and not fresh:
        return Forked(scene.command(folder), environment)
    command = [*scene.start, *scene.command(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _kill_once(scene: Scene, folder: Path, calm: Calm, chance: random.Random, tally: Tally) -> bool:
    """Starts the command and kills it; False if it was done before, or ended in a way of its own, which is a fault."""
    if scene.new_folder and (folder / scene.out).exists():
        return False
    notes = folder.parent / "notes"
    at_file = calm.operations > 0 and chance.random() < 0.5
    struck = False
    if at_file:
        process = start(scene, folder, notes, die_at=chance.randint(1, calm.operations))
    else:
        process = start(scene, folder, notes)
        struck = _strike(scene, process, notes, chance.random() * calm.seconds, chance)
    try:
        _, words = process.communicate(timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        tally.faults.append(f"did not end within {LONGEST_SECONDS:.0f} s after a kill")
        return False
    if process.returncode == 0:
        return False
    wrong = not_by_the_kill(scene, process, notes, struck, words.decode(errors="replace"))
    if wrong:
        tally.faults.append(wrong)
        return False
    tally.kills += 1
    tally.at_files += at_file
    tally.temporaries_after_kills += bool(temporaries(folder.parent))
    tally.faults += _half_written(scene, folder, calm)
    return True


def _strike(scene: Scene, process: Process, notes: Path, seconds: float, chance: random.Random) -> bool:
    """Kills after so many seconds of work; False if there was nothing left to kill."""
    latest = time.monotonic() + LONGEST_SECONDS
    while process.poll() is None and len(list(notes.glob("begun.*"))) < scene.ranks and time.monotonic() < latest:
        time.sleep(0.002)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    someone = scene.victim(process, chance) if process.poll() is None else None
    if someone is None:
        return False
    try:
        os.kill(someone, signal.SIGKILL)
    except ProcessLookupError:  # a rank that ended in this moment
        return False
    return True


def not_by_the_kill(scene: Scene, process: Process, notes: Path, struck: bool, words: str) -> str | None:
    """What is wrong with an end that is not success; None if it was the kill, told in one line where others noticed."""
    last = " / ".join(words.splitlines()[-3:])[-400:]
    if scene.ranks == 1:
        if process.returncode == -signal.SIGKILL:
            return None
        return f"ended with {process.returncode}, not by a kill: {last}"
    if not struck and not (notes / "struck").exists():
        return f"ended with {process.returncode}, and no rank was killed: {last}"
    complaints = [line for line in words.splitlines() if line.startswith(COMPLAINTS)]
    # a rank that was through before the other one was killed, or had not begun to work, has nothing to tell
    unaware = any(notes.glob("done.*")) or len(list(notes.glob("begun.*"))) < scene.ranks
    tracebacks = words.count("Traceback (most recent") - 1  # torchrun ends in one of its own
    if len(complaints) > 1 or tracebacks > 0 or not (complaints or unaware):
        return f"{len(complaints)} lines instead of one after the death of a rank: {' / '.join(complaints) or last}"
    return None


def _half_written(scene: Scene, folder: Path, calm: Calm) -> list[str]:
    faults = [f"half a file after a kill: {name}" for name in unreadable(folder)]
    if scene.new_folder and (folder / scene.out).exists():
        found = differences(contents(folder), calm.contents)
        faults += [f"half a folder after a kill: {name}" for name in found if name.startswith(scene.out)]
    return faults


def _finish(scene: Scene, folder: Path, calm: Calm) -> list[str]:
    """Runs the command to its end and compares."""
    process = start(scene, folder, folder.parent / "notes")
    _, words = process.communicate(timeout=LONGEST_SECONDS)
    there = scene.new_folder and process.returncode == REFUSED and (folder / scene.out).exists()
    if process.returncode != 0 and not there:
        return [f"could not be resumed: {words.decode(errors='replace')[-300:]}"]
    left = [f"left a temporary file: {name}" for name in temporaries(folder.parent)]
    return left + [f"differs from an undisturbed run: {name}" for name in differences(contents(folder), calm.contents)]


if __name__ == "__main__":
    sys.exit(main())
