"""Temporary names of dead processes go with the next write into their folder; those of living ones stay."""

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exhume import leftovers
from exhume.files import replacing, write_text
from exhume.leftovers import Claim, remove_leftovers

# writes half a file (or a folder with a file) under a temporary name, says so, and waits to be killed
HALF_WAY = """
import sys, time
from pathlib import Path
from exhume.leftovers import Claim
temporary = Claim.beside(Path(sys.argv[1]), folder=sys.argv[2] == "folder").path
(temporary / "half" if temporary.is_dir() else temporary).write_text("half")
print("here", flush=True)
time.sleep(600)
"""


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_goes_with_the_next_write_and_not_before_it_is_dead(
    tmp_path: Path, kind: str
) -> None:
    command = [sys.executable, "-c", HALF_WAY, str(tmp_path / "a"), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "here\n"
        left = hidden(tmp_path)
        assert len(left) == 1
        write_text(tmp_path / "b", "whole")
        assert hidden(tmp_path) == left, "its owner is alive"
        writer.kill()
    assert hidden(tmp_path) == left
    write_text(tmp_path / "b", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_names_that_exhume_did_not_make_are_nobodys_leftovers(tmp_path: Path) -> None:
    names = [".a.1234abcd.tmp", "a.1234abcd.exhume.tmp", ".a.exhume.tmp", ".a.1234abcd.exhume.tmp.txt", ".a.xyz.tmp"]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / ".link.1234abcd.exhume.tmp").symlink_to(tmp_path / "elsewhere")
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {*names, "elsewhere"}
    remove_leftovers(tmp_path / "there is no such folder")


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as first, replacing(tmp_path / "a") as second:
        first.write_text("1")
        second.write_text("2")
    assert (tmp_path / "a").read_text() == "1"
    assert hidden(tmp_path) == []


def test_a_name_that_was_taken_for_a_leftover_before_it_was_locked_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = leftovers.locked, list[Path]()

    def too_late(file: int) -> bool | None:
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].unlink()
        return lock(file)

    monkeypatch.setattr(leftovers, "locked", too_late)
    claim = Claim.beside(tmp_path / "a", folder=False)
    assert claim.path.exists()
    assert claim.path != taken[0]
    claim.release()
    assert hidden(tmp_path) == []


def test_where_there_are_no_locks_files_are_written_and_nothing_is_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    (tmp_path / ".a.1234abcd.exhume.tmp").write_text("whose?")
    monkeypatch.setattr(fcntl, "flock", refuse)
    write_text(tmp_path / "a", "1")
    assert (tmp_path / "a").read_text() == "1"
    assert hidden(tmp_path) == [".a.1234abcd.exhume.tmp"]


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    opened = Path("/proc/self/fd")
    if not opened.exists():
        pytest.skip("needs /proc")
    before = len(list(opened.iterdir()))
    for _ in range(5):
        write_text(tmp_path / "a", "1")
    assert len(list(opened.iterdir())) == before


# safetensors writes to a temporary file of its own beside the one it was given
KILLED_IN_SAFETENSORS = """
import os, signal, sys
from pathlib import Path
import safetensors.torch, torch
from exhume.files import write_tensors

def save(tensors, path, metadata):
    Path(path).with_name(".tmpAbCdEf").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

safetensors.torch.save_file = save
write_tensors(Path(sys.argv[1]), "truth", {"a": torch.zeros(3)}, {})
"""


def test_what_a_library_left_under_a_name_of_its_own_goes_as_well(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_SAFETENSORS, str(tmp_path / "a")], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert hidden(tmp_path) != []
    write_text(tmp_path / "b", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
