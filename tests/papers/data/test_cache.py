from pathlib import Path

import pytest

from exhume_papers.data.cache import default_data_dir


def test_the_cache_honours_xdg_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / "exhume"


@pytest.mark.parametrize("value", [None, "", "relative/path"])
def test_the_cache_is_under_home_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    if value is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert default_data_dir() == tmp_path / ".cache" / "exhume"
