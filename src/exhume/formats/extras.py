"""Libraries that some formats need, and that are installed only where somebody asks for them."""

from importlib import import_module
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError


class MissingExtra(ExhumeError):
    """A file that this installation cannot read, and another one can."""

    def __init__(self, module: str, extra: str, path: Path) -> None:
        super().__init__(f"expected {module} to read {path}, found it not installed; pip install 'exhume[{extra}]'")
        self.extra = extra


def require(module: str, extra: str, path: Path) -> Any:
    try:
        return import_module(module)
    except ImportError as problem:
        raise MissingExtra(module, extra, path) from problem
