"""Inputs that once broke something, and a few hundred new ones; soak/fuzz.py tries tens of thousands.

A file of corpus/TARGET/ is named LABEL--PLACE: the file of the corpus that it stands in for, with __ between folders.
"""

import importlib
import json
import random
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exhume import formats

SOAK = Path(__file__).parents[2] / "soak"
KEPT = sorted(path for path in (Path(__file__).parent / "corpus").glob("*/*") if path.is_file())
NEW_INPUTS = 300


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Any]:
    """The modules of the harness, which is no package."""
    sys.path.insert(0, str(SOAK))
    try:
        yield importlib.import_module("fuzz")
    finally:
        sys.path.remove(str(SOAK))


@pytest.fixture(scope="module")
def bench(fuzz: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A corpus of its own, and the alarm that ends what takes too long."""
    folder, arguments = tmp_path_factory.mktemp("fuzz"), sys.argv
    before = signal.signal(signal.SIGPROF, fuzz._ring)
    try:
        importlib.import_module("fuzz_corpus").make_corpus(folder / "corpus")
        yield fuzz.Bench(folder / "corpus", folder / "work")
    finally:
        sys.argv = arguments
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("kept", KEPT, ids=[f"{path.parent.name}/{path.name}" for path in KEPT])
def test_what_broke_once_is_taken_or_refused_in_one_line(bench: Any, kept: Path) -> None:
    target = importlib.import_module("fuzz_targets").BY_NAME[kept.parent.name]
    name = kept.name.partition("--")[2].replace("__", "/")
    assert bench.attempt(target, name, kept.read_bytes()) is None


def test_a_few_hundred_new_inputs_break_nothing(bench: Any, fuzz: Any) -> None:
    """The cheap targets alone; the seed is fixed, so that a failure can be looked at."""
    targets = [target for target in importlib.import_module("fuzz_targets").TARGETS if not target.writes]
    for number in range(NEW_INPUTS):
        dice = random.Random(f"test {number}")
        target = dice.choice(targets)
        name = dice.choice(fuzz.expand(bench.corpus, target.files))
        content = fuzz.mutated(bench.corpus, target, name, dice)
        assert bench.attempt(target, name, content) is None, (number, target.name, name)


def test_every_reader_of_a_format_is_reached_by_a_target(bench: Any) -> None:
    """Unchanged files go through the cheap targets; whatever reads a format has to be among what ran."""
    targets = [target for target in importlib.import_module("fuzz_targets").TARGETS if not target.writes]
    expand, ran = importlib.import_module("fuzz").expand, set[tuple[str, str]]()

    def watch(frame: Any, event: str, argument: object) -> None:
        if event == "call" and "/exhume/formats/" in frame.f_code.co_filename:
            ran.add((Path(frame.f_code.co_filename).stem, frame.f_code.co_name))

    sys.setprofile(watch)
    try:
        for target in targets:
            for name in expand(bench.corpus, target.files):
                assert bench.attempt(target, name, (bench.corpus / name).read_bytes()) is None, (target.name, name)
    finally:
        sys.setprofile(None)
    readers = {
        (path.stem, name)
        for path in Path(formats.__path__[0]).glob("*.py")
        for name in re.findall(r"^def ((?:read|chain_of|head_of|order_of)\w*)\(", path.read_text(), re.MULTILINE)
    }
    assert len(readers) > 15
    assert readers - ran == set()


def test_a_traceback_and_a_hang_are_seen(bench: Any, fuzz: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: the harness would notice."""
    targets = importlib.import_module("fuzz_targets")

    def stumble(work: Path, changed: Path) -> None:
        raise KeyError("unforeseen")

    def spin(work: Path, changed: Path) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzz, "HANG_SECONDS", 0.05)
    for call, what in ((stumble, "tracebacks"), (spin, "hangs")):
        found = bench.attempt(targets.Target("broken", "json", ("spectrum.json",), call), "spectrum.json", b"{}")
        assert found is not None
        assert found[0] == what


def test_a_worker_that_cannot_start_is_given_up_and_what_it_was_at_is_counted_and_kept(
    fuzz: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_corpus(place: Path) -> None:
        (place / "corpus").mkdir()
        (place / "corpus" / "spectrum.json").write_text("{}")

    def die(asked: Any, place: Path, first: int, last: int) -> tuple[str, int]:
        (place / "told.jsonl").write_text("")
        return "crashes", first

    monkeypatch.setattr(fuzz, "_make_corpus", make_corpus)
    monkeypatch.setattr(fuzz, "_one_worker", die)
    written, kept = tmp_path / "fuzz.json", tmp_path / "kept"
    asked = {"inputs": 50_000, "first": 3, "seed": 0, "only": "spectrum", "keep": kept, "json": written}
    assert fuzz.watch(SimpleNamespace(**asked)) == 1
    found = json.loads(written.read_text())
    assert (found["inputs"], found["crashes"], found["targets"]) == (20, 20, {"spectrum": 20})
    assert len(list((kept / "spectrum").iterdir())) == 20
