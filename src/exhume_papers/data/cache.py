"""Where downloaded data lives unless the user says otherwise."""

import os
from pathlib import Path

from exhume.data.config import DataConfig


def default_data_dir() -> Path:
    """`exhume` in the user's cache folder: $XDG_CACHE_HOME where it is set to an absolute path, else ~/.cache."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification asks to ignore a relative path.
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache"
    return base / "exhume"


def data_dir(config: DataConfig) -> Path:
    """Where a request says that its data set is."""
    return default_data_dir() if config.data_dir is None else config.data_dir.expanduser()
