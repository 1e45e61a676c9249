"""Mutated files and command lines through everything in exhume that reads them.

    python soak/fuzz.py --inputs 50000 --json fuzz.json

An input is wrong in some way. It has to be taken, or refused by an `ExhumeError`: anything else that is raised is a
traceback, more than a few seconds is a hang, and the end of the process is a crash. Input number i of a seed is always
the same; those that broke something are kept with --keep, in the form that tests/fuzz/corpus has.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

HANG_SECONDS = 5.0
"""Of work, not of waiting for a busy machine: whoever waits forever is found by the limit below."""
LOST_SECONDS = 120.0
"""After so long without a sign the process itself is given up: something does not even hear the alarm."""
SPARE_MEMORY = 3 * 2**30


class Hang(BaseException):
    """Not an Exception, so that nothing on the way takes it for one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--json", type=Path, help="where to write the counts")
    parser.add_argument("--keep", type=Path, help="a folder for the inputs that broke something")
    parser.add_argument("--only", help="one target")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker is not None:
        return work(asked, asked.worker)
    return watch(asked)


def watch(asked: argparse.Namespace) -> int:
    """Starts workers one after the other until all inputs are through; a worker ends early only by a crash."""
    began = time.monotonic()
    counts = {"crashes": 0, "hangs": 0, "tracebacks": 0}
    by_target: dict[str, int] = {}
    last = asked.first + asked.inputs
    with tempfile.TemporaryDirectory(prefix="exhume-fuzz-") as name:
        place = Path(name)
        _make_corpus(place)
        next_input = asked.first
        while next_input < last:
            ended, reached = _one_worker(asked, place, next_input, last)
            told = [json.loads(line) for line in (place / "told.jsonl").read_text().splitlines()]
            for line in told:
                if line["what"] == "inputs":
                    by_target[line["target"]] = by_target.get(line["target"], 0) + line["count"]
                else:
                    counts[line["what"]] += 1
            next_input = reached
            if ended is not None:
                counts[ended] += 1
                print(f"input {reached}: {ended}", file=sys.stderr)
                next_input = reached + 1
    seconds = round(time.monotonic() - began, 1)
    result: dict[str, Any] = {"inputs": asked.inputs, **counts, "seconds": seconds, "targets": by_target}
    if asked.json is not None:
        asked.json.write_text(json.dumps(result, indent=2) + "\n")
    told_counts = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"{asked.inputs:,} mutated inputs: {told_counts}, {seconds:.0f} s")
    return 1 if any(counts.values()) else 0


def _make_corpus(place: Path) -> None:
    from fuzz_corpus import make_corpus

    make_corpus(place / "corpus")


def _one_worker(asked: argparse.Namespace, place: Path, first: int, last: int) -> tuple[str | None, int]:
    """How a worker ended (None: it got through), and the number of the input that it was at."""
    (place / "told.jsonl").write_text("")
    (place / "at").write_text(str(first))
    command = [sys.executable, __file__, "--worker", place, "--first", first, "--inputs", last - first]
    command += ["--seed", asked.seed]
    command += [] if asked.keep is None else ["--keep", asked.keep.resolve()]
    command += [] if asked.only is None else ["--only", asked.only]
    worker = subprocess.Popen([str(word) for word in command], start_new_session=True)
    before, since = "", time.monotonic()
    try:
        while worker.poll() is None:
            time.sleep(0.2)
            now = (place / "at").read_text()
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > LOST_SECONDS:
                return "hangs", int(now)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)  # and what it has started itself
        worker.wait()
    reached = int((place / "at").read_text())
    return (None, last) if worker.returncode == 0 else ("crashes", reached)


def work(asked: argparse.Namespace, place: Path) -> int:
    """Inputs first to first + inputs - 1, in this process."""
    from fuzz_targets import TARGETS

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.simplefilter("error")  # a warning is many lines on somebody's terminal
    signal.signal(signal.SIGPROF, _ring)
    _limit_memory()
    bench = Bench(place / "corpus", place / "work")
    os.chdir(bench.folder)  # a command may be told to write to 0 or nan
    targets = [target for target in TARGETS if asked.only in (None, target.name)]
    shares = [target.share for target in targets]
    done: dict[str, int] = {}
    with (place / "told.jsonl").open("a") as told:
        for number in range(asked.first, asked.first + asked.inputs):
            (place / "at").write_text(str(number))
            dice = random.Random(f"{asked.seed} {number}")
            target = dice.choices(targets, shares)[0]
            name = dice.choice(bench.expand(target.files))
            content = bench.mutated(target, name, dice)
            fault = bench.attempt(target, name, content)
            done[target.name] = done.get(target.name, 0) + 1
            if fault is not None:
                what, words = fault
                print(f"input {number}, {target.name}, {name}: {words}", file=sys.stderr)
                told.write(json.dumps({"what": what}) + "\n")
                told.flush()
                _keep(asked.keep, target.name, name, number, content)
        for target_name, count in done.items():
            told.write(json.dumps({"what": "inputs", "target": target_name, "count": count}) + "\n")
    return 0


class Bench:
    """A copy of the corpus in which one file at a time is changed and put back."""

    def __init__(self, corpus: Path, folder: Path) -> None:
        self.corpus, self.folder = corpus, folder
        self._renew()

    def expand(self, names: tuple[str, ...]) -> list[str]:
        """The files of a target; a name with a star stands for those that it fits."""
        found = [[name] if "*" not in name else sorted(self._relative(name)) for name in names]
        return [name for some in found for name in some]

    def mutated(self, target: Any, name: str, dice: random.Random) -> bytes:
        from fuzz_mutations import MUTATORS

        return MUTATORS[target.mutator]((self.corpus / name).read_bytes(), dice)

    def attempt(self, target: Any, name: str, content: bytes) -> tuple[str, str] | None:
        """What went wrong (hangs, tracebacks) and in which words; None if nothing did."""
        from exhume.errors import ExhumeError

        changed = self.folder / name
        changed.write_bytes(content)
        try:
            signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
            try:
                target.call(self.folder, changed)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        except ExhumeError as refused:
            if len(str(refused)) > 20_000:
                return "tracebacks", f"a complaint of {len(str(refused)):,} letters"
        except Hang:
            return "hangs", "".join(traceback.format_exc()[-1500:])
        except BaseException:
            return "tracebacks", traceback.format_exc()[-1500:]
        finally:
            self._restore(target, name)
        return None

    def _restore(self, target: Any, name: str) -> None:
        if not target.writes:
            (self.folder / name).write_bytes((self.corpus / name).read_bytes())
            return
        now = _looks(self.folder)
        for path in sorted(now.keys() - self.looks.keys(), reverse=True):  # what is in a folder before the folder
            place = self.folder / path
            shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)
        for path in sorted(path for path, look in self.looks.items() if now.get(path) != look):
            if (self.corpus / path).is_dir():
                (self.folder / path).mkdir(exist_ok=True)
            else:
                shutil.copy2(self.corpus / path, self.folder / path)

    def _renew(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.corpus, self.folder)
        self.looks = _looks(self.folder)

    def _relative(self, pattern: str) -> list[str]:
        return [str(path.relative_to(self.corpus)) for path in self.corpus.glob(pattern)]


def _looks(folder: Path) -> dict[str, tuple[int, int] | None]:
    """Size and time of every file below a folder, None for folders: enough to see which have changed."""
    found: dict[str, tuple[int, int] | None] = {}
    start = len(str(folder)) + 1
    for place, folders, files in os.walk(folder):
        for name in folders:
            found[f"{place}/{name}"[start:]] = None
        for name in files:
            seen = os.lstat(f"{place}/{name}")
            found[f"{place}/{name}"[start:]] = (seen.st_size, seen.st_mtime_ns)
    return found


def _ring(signum: int, frame: FrameType | None) -> None:
    raise Hang


def _limit_memory() -> None:
    """A file that claims to be huge has to be refused, not to end the machine."""
    import torch

    torch.set_num_threads(1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_MEMORY, resource.RLIM_INFINITY))


def _keep(folder: Path | None, target: str, name: str, number: int, content: bytes) -> None:
    if folder is not None:
        place = folder / target
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}--{name.replace('/', '__')}").write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
