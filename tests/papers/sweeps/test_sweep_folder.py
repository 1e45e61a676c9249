"""What a killed sweep left half written goes with the next one, wherever it is."""

from pathlib import Path

import pytest

from exhume_papers.sweeps.sweep_folder import SweepFolder


@pytest.mark.parametrize("place", [".", "victims", "victims/abc", "runs", "runs/.def.part"])
@pytest.mark.parametrize("folder", [False, True])
def test_temporary_names_are_removed_and_nothing_else(tmp_path: Path, place: str, folder: bool) -> None:
    for name in ("victims/abc", "runs/.def.part", "runs/ghi"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "summary.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    left = tmp_path / place / ".summary.json.1234abcd.exhume.tmp"
    if folder:
        left.mkdir()
        (left / "half").write_text("")
    else:
        left.write_text("")
    SweepFolder(tmp_path).tidy()
    assert sorted(tmp_path.rglob("*")) == before
