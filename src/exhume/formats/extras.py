"""Libraries that some formats need, and that are installed only where somebody asks for them."""

from importlib import import_module
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError


def require(module: str, extra: str, path: Path) -> Any:
    try:
        return import_module(module)
    except ImportError as problem:
        raise ExhumeError(
            f"expected {module} to read {path}, found it not installed; pip install 'exhume[{extra}]'"
        ) from problem
