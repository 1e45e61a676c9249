"""Fixtures and settings that every test shares."""

import os
from collections.abc import Iterator

import jaxtyping
import pytest
from hypothesis import settings

# as the command line does, before torch is loaded: threads that wait must not spin on a busy machine
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# the first call into torch takes longer than hypothesis' own limit for an example
settings.register_profile("exhume", deadline=None)
settings.load_profile("exhume")


@pytest.fixture
def shapes_unchecked() -> Iterator[None]:
    """Checking every call makes an attack six times slower, and the checks are not made for threads."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
