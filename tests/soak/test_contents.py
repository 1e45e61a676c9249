"""Two folders are the same if they differ in times and memory alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.files import write_tensors

Part = Callable[[str], Any]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        folder = tmp_path / name / "deep"
        folder.mkdir(parents=True)
        place = str(tmp_path / name)
        summary = {"loss": 0.5, "seconds": seconds, "report": f"{place}/r.html", "runs": [{"peak_memory_mb": seconds}]}
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / "trace.csv").write_text(f"iteration,loss,seconds\n0,0.25,{seconds}\n")
        write_tensors(folder / "x.safetensors", "thing", {"a": torch.ones(3)}, {"seconds": seconds, "seed": 1})
        (folder / ".lock").write_text(name)
    return tmp_path / "a", tmp_path / "b"


def test_times_memory_and_places_do_not_count(part: Part, folders: tuple[Path, Path]) -> None:
    found = part("contents")
    ours, theirs = (found.contents(folder) for folder in folders)
    assert len(ours) == 3
    assert found.differences(ours, theirs) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("summary.json", '{"loss": 0.6}'),
        ("trace.csv", "iteration,loss,seconds\n0,0.26,1\n"),
        ("trace.csv", "iteration,loss,seconds\n"),
    ],
)
def test_other_numbers_do(part: Part, folders: tuple[Path, Path], name: str, text: str) -> None:
    found = part("contents")
    (folders[1] / "deep" / name).write_text(text)
    assert found.differences(*map(found.contents, folders)) == [f"deep/{name}"]


def test_other_tensors_and_other_files_do(part: Part, folders: tuple[Path, Path]) -> None:
    found = part("contents")
    write_tensors(folders[1] / "deep" / "x.safetensors", "thing", {"a": torch.ones(3) * 1.0001}, {"seed": 1})
    (folders[1] / ".y.1234abcd.exhume.tmp").write_text("left")
    expected = [".y.1234abcd.exhume.tmp is missing", "deep/x.safetensors"]
    assert found.differences(*map(found.contents, folders)) == expected
    assert found.temporaries(folders[1]) == [".y.1234abcd.exhume.tmp"]
    assert found.temporaries(folders[0]) == []


@pytest.mark.parametrize("name", ["summary.json", "x.safetensors"])
def test_half_a_file_is_found_unless_it_is_hidden(part: Part, folders: tuple[Path, Path], name: str) -> None:
    found, file = part("contents"), folders[0] / "deep" / name
    assert found.unreadable(folders[0]) == []
    half = file.read_bytes()[:-7]
    (folders[0] / f".{name}.1234abcd.exhume.tmp").write_bytes(half)
    assert found.unreadable(folders[0]) == []
    file.write_bytes(half)
    assert [words.partition(":")[0] for words in found.unreadable(folders[0])] == [name]
