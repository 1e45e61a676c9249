"""The parts of the soak test are programs that import their neighbours: they are loaded from where they are."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SOAK = Path(__file__).parents[2] / "soak"


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Loads a program of the soak folder by its name; other tests do not see it."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(SOAK)
    yield importlib.import_module
    for name in {path.stem for path in SOAK.glob("*.py")} & (set(sys.modules) - before):
        del sys.modules[name]
