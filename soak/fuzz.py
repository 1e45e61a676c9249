"""Mutated files and command lines through everything in exhume that reads them.

    python soak/fuzz.py --inputs 50000 --json fuzz.json

An input is wrong in some way. It has to be taken, or refused by an `ExhumeError`: anything else that is raised is a
traceback, more than a few seconds is a hang, and the end of the process is a crash. Input number i of a seed is always
the same; those that broke something are kept with --keep, in the form that tests/fuzz/corpus has. What is counted is
what was done: after a few crashes the rest is left.
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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from outcome import finish

HANG_SECONDS = 5.0
"""Of work, not of waiting for a busy machine: whoever waits forever is found by the limit below."""
LOST_SECONDS = 120.0
"""After so long without a sign the process itself is given up: something does not even hear the alarm."""
MOST_CRASHES = 20
"""Ends of the process after which the rest is not tried: a worker that cannot even start would crash for ever."""
SPARE_MEMORY = 3 * 2**30


WHAT = ("crashes", "hangs", "tracebacks")


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
    faults: list[dict[str, str]] = []
    last = asked.first + asked.inputs
    with tempfile.TemporaryDirectory(prefix="exhume-fuzz-") as name:
        place = Path(name)
        _make_corpus(place)
        next_input, ends = asked.first, 0
        while next_input < last and ends < MOST_CRASHES:
            ended, reached = _one_worker(asked, place, next_input, last)
            faults += [json.loads(line) for line in (place / "told.jsonl").read_text().splitlines()]
            next_input = reached
            if ended is not None:
                ends, next_input = ends + 1, reached + 1
                found = make_input(place / "corpus", asked, reached)
                faults.append({"what": ended, "words": f"input {reached}, {found.target.name}, {found.name}: {ended}"})
                _keep(asked.keep, found, reached)
        by_target = Counter(choose(asked, number)[0].name for number in range(asked.first, next_input))
    result = summary(faults, by_target, time.monotonic() - began)
    left = last - next_input
    told = ", ".join(f"{result[what]} {what}" for what in WHAT) + (f"; {left:,} inputs were not tried" if left else "")
    line = f"{result['inputs']:,} mutated inputs: {told}, {result['seconds']:.0f} s"
    return finish({**result, "asked": asked.inputs, "seed": asked.seed}, asked.json, line)


def summary(faults: Sequence[Mapping[str, str]], by_target: Mapping[str, int], seconds: float) -> dict[str, Any]:
    """`inputs` is the number that was tried, whatever was asked for."""
    return {
        "inputs": sum(by_target.values()),
        **{what: sum(fault["what"] == what for fault in faults) for what in WHAT},
        "faults": [fault["words"] for fault in faults],
        "targets": dict(by_target),
        "seconds": round(seconds, 1),
    }


@dataclass(frozen=True)
class Input:
    """A file of the corpus with another content."""

    target: Any
    name: str
    content: bytes


def choose(asked: argparse.Namespace, number: int) -> tuple[Any, random.Random]:
    """The target of an input, and the dice that its content is then drawn with."""
    from fuzz_targets import TARGETS

    targets = [target for target in TARGETS if asked.only in (None, target.name)]
    dice = random.Random(f"{asked.seed} {number}")
    return dice.choices(targets, [target.share for target in targets])[0], dice


def make_input(corpus: Path, asked: argparse.Namespace, number: int) -> Input:
    target, dice = choose(asked, number)
    name = dice.choice(expand(corpus, target.files))
    return Input(target, name, mutated(corpus, target, name, dice))


def expand(corpus: Path, names: tuple[str, ...]) -> list[str]:
    """The files of a target; a name with a star stands for those that it fits."""
    found = [[name] if "*" not in name else sorted(_relative(corpus, name)) for name in names]
    return [name for some in found for name in some]


def mutated(corpus: Path, target: Any, name: str, dice: random.Random) -> bytes:
    from fuzz_mutations import MUTATORS

    return MUTATORS[target.mutator]((corpus / name).read_bytes(), dice)


def _relative(corpus: Path, pattern: str) -> list[str]:
    return [str(path.relative_to(corpus)) for path in corpus.glob(pattern)]


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
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.simplefilter("error")  # a warning is many lines on somebody's terminal
    signal.signal(signal.SIGPROF, _ring)
    _limit_memory()
    bench = Bench(place / "corpus", place / "work")
    os.chdir(bench.folder)  # a command may be told to write to 0 or nan
    with (place / "told.jsonl").open("a") as told:
        for number in range(asked.first, asked.first + asked.inputs):
            (place / "at").write_text(str(number))
            made = make_input(bench.corpus, asked, number)
            fault = bench.attempt(made.target, made.name, made.content)
            if fault is not None:
                what, words = fault
                print(f"input {number}, {made.target.name}, {made.name}: {words}", file=sys.stderr)
                last = (words.strip().splitlines() or [""])[-1][:300]
                said = f"input {number}, {made.target.name}, {made.name}: {last}"
                told.write(json.dumps({"what": what, "words": said}) + "\n")
                told.flush()
                _keep(asked.keep, made, number)
    return 0


class Bench:
    """A copy of the corpus in which one file at a time is changed and put back."""

    def __init__(self, corpus: Path, folder: Path) -> None:
        self.corpus, self.folder = corpus, folder
        self._renew()

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


def _keep(folder: Path | None, broke: Input, number: int) -> None:
    if folder is not None:
        place = folder / broke.target.name
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}--{broke.name.replace('/', '__')}").write_bytes(broke.content)


if __name__ == "__main__":
    sys.exit(main())
