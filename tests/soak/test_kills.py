"""The harness itself: that it kills where it says, and would notice what it looks for."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
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


@pytest.mark.parametrize("kills", [7, 20, 100])
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
if "SOAK_COUNT" in os.environ:
    pathlib.Path(os.environ["SOAK_COUNT"]).write_text("0")
time.sleep(0.3)
(folder / ".x").write_text("[1]")
(folder / ".x").rename(folder / "x.json")
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


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_commands_that_are_killed_end_as_if_they_had_not_been(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SOAK / "kills.py"), "--kills", "7", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "7 kills" in done.stdout
