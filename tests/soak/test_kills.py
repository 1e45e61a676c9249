"""The harness itself: that it kills where it says, and would notice what it looks for."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

Part = Callable[[str], Any]
SOAK = Path(__file__).parents[2] / "soak"

# three operations on files of the folder, with a fuse of the length that is given; one elsewhere does not count
BURNS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kill_launch import Fuse
folder = Path(sys.argv[2])
sys.addaudithook(Fuse(str(folder), int(sys.argv[3])))
(folder.parent / "elsewhere").write_text("")
(folder / "1").write_text("")
(folder / "1").read_text()
(folder / "1").rename(folder / "2")
(folder / "3").mkdir()
"""


@pytest.mark.parametrize(("length", "left"), [(1, []), (2, ["1"]), (3, ["2"]), (4, ["2", "3"])])
def test_a_fuse_strikes_right_before_an_operation_on_a_file(tmp_path: Path, length: int, left: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, "-c", BURNS, str(SOAK), str(folder), str(length)]
    done = subprocess.run(command, check=False)
    assert done.returncode == (0 if length == 4 else -signal.SIGKILL)
    assert sorted(path.name for path in folder.iterdir()) == left


@pytest.mark.parametrize("kills", [13, 20, 100])
def test_kills_are_shared_out_to_the_last(part: Part, tmp_path: Path, kills: int) -> None:
    scenes = part("kill_scenes").scenes(tmp_path)
    counts = part("kills").shares(kills, scenes)
    assert sum(counts) == kills
    assert min(counts) >= 1
    assert {name.split(",")[0].split()[0] for name in (scene.name for scene in scenes)} == {
        "train",
        "attack",
        "sweep",
        "audit",
        "scan",
    }


def scene_of(part: Part, script: str) -> Any:
    """A scene whose command is a small program in place of exhume."""

    def prepare(folder: Path) -> None:
        (folder.parent / "program.py").write_text(script)

    start = (sys.executable, "-c", "import os, runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0])")
    scene = part("kill_scenes").Scene
    return scene("toy", 1.0, prepare, lambda folder: [str(folder.parent / "program.py"), str(folder)], start=start)


HONEST = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
notes = pathlib.Path(os.environ["SOAK_NOTES"])
(notes / "begun.0").touch()
time.sleep(0.3)
(folder / ".x").write_text("[1]")
(folder / ".x").rename(folder / "x.json")
(notes / "count").write_text("0")
"""
CARELESS = HONEST.replace("time.sleep(0.3)", '(folder / "x.json").write_text("[1"); time.sleep(0.3)')
FORGETFUL = HONEST.replace("time.sleep(0.3)", '(folder / f"{time.time()}.tmp").write_text(""); time.sleep(0.3)')


@pytest.mark.parametrize(
    ("script", "expected"),
    [(HONEST, None), (CARELESS, "half a file"), (FORGETFUL, "too many")],
    ids=["honest", "careless", "forgetful"],
)
def test_half_written_files_and_leftovers_are_noticed(
    part: Part, tmp_path: Path, script: str, expected: str | None
) -> None:
    chance = random.Random(1)
    tally = part("kills").harass(scene_of(part, script), 2, tmp_path, chance)
    assert tally.kills >= 1
    found = " / ".join(tally.faults)
    assert (expected in found) if expected else not tally.faults, found


def test_an_end_that_is_not_by_a_kill_is_a_fault(part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills, scene = part("kills"), scene_of(part, HONEST.replace("time.sleep(0.3)", "sys.exit(int(os.environ['TOY']))"))
    calm = kills.Calm({}, 0.0, 0)
    folder = tmp_path / "f"
    folder.mkdir()
    scene.prepare(folder)
    monkeypatch.setenv("TOY", "1")
    monkeypatch.setattr(kills, "_strike", lambda *_: False)
    tally = kills.Tally("toy")
    assert not kills._kill_once(scene, folder, calm, random.Random(0), tally)
    assert tally.kills == 0
    assert "ended with 1, not by a kill" in tally.faults[0]


def test_a_scene_that_is_always_too_quick_is_given_up_with_a_fault(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = part("kills")
    monkeypatch.setattr(kills, "_kill_once", lambda *_: False)
    tally = kills.harass(scene_of(part, HONEST), 2, tmp_path, random.Random(0))
    assert tally.kills == 0
    assert tally.faults == [f"was done before any kill, {kills.MOST_VAIN_RUNS} times in a row"]


RANKS = "Traceback (most recent call last):\ntorchrun's own\n"
LOST = "exhume: expected 2 ranks, found that one has stopped; start again\n"


@pytest.mark.parametrize(
    ("notes", "struck", "words", "kept"),
    [
        (("begun.0", "begun.1"), True, LOST + RANKS, True),
        (("begun.0", "begun.1", "struck"), False, LOST + RANKS, True),
        (("begun.0", "begun.1", "done.1"), True, RANKS, True),
        (("begun.0", "begun.1"), True, RANKS, False),
        (("begun.0", "begun.1"), True, LOST + LOST, False),
        (("begun.0", "begun.1"), True, LOST + RANKS + RANKS, False),
        (("begun.0", "begun.1"), False, LOST + RANKS, False),
    ],
)
def test_the_death_of_a_rank_counts_where_one_was_killed_and_the_other_says_so_once(
    part: Part, tmp_path: Path, notes: tuple[str, ...], struck: bool, words: str, kept: bool
) -> None:
    for name in notes:
        (tmp_path / name).touch()
    scene = next(scene for scene in part("kill_scenes").scenes(tmp_path) if scene.ranks == 2)
    ended = SimpleNamespace(returncode=1)
    assert (part("kills").not_by_the_kill(scene, ended, tmp_path, struck, words) is None) == kept


def test_a_forked_command_ends_as_a_process_does(part: Part, tmp_path: Path) -> None:
    """In a process of its own: a fork wants one thread alone, and this one may have had others."""
    program = """
import os, signal, sys, tempfile
sys.path.insert(0, sys.argv[1])
from forked import Forked, warm_up
warm_up()
where = os.environ | {"SOAK_FOLDER": sys.argv[2], "SOAK_NOTES": sys.argv[2]}
told = Forked(["gauge", "--params", "60", "--dim", "3", "--samples", "2"], where)
assert told.communicate(100) == (None, b"") and told.returncode == 0, told.returncode
wrong = Forked(["gauge", "--params", "soon"], where)
assert wrong.communicate(100)[1].startswith(b"exhume: ") and wrong.returncode == 2
slow = Forked(["train", "two-layer", "--data", "sphere", "--out", sys.argv[2]], where)
slow.kill()
assert slow.wait(100) == -signal.SIGKILL
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(SOAK), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_commands_that_are_killed_end_as_if_they_had_not_been(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SOAK / "kills.py"), "--kills", "13", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "13 kills" in done.stdout
