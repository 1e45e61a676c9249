"""Where downloaded data lives unless the user says otherwise."""

import os
from pathlib import Path


def default_data_dir() -> Path:
    """`exhume` in the user's cache folder: $XDG_CACHE_HOME where it is set to an absolute path, else ~/.cache."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification asks to ignore a relative path.
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache"
    return base / "exhume"
