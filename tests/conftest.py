"""Fixtures and settings that every test shares."""

import os

from hypothesis import settings

# as the command line does, before torch is loaded: threads that wait must not spin on a busy machine
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# the first call into torch takes longer than hypothesis' own limit for an example
settings.register_profile("exhume", deadline=None)
settings.load_profile("exhume")
