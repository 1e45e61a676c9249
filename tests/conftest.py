"""Fixtures and settings that every test shares."""

from hypothesis import settings

# the first call into torch takes longer than hypothesis' own limit for an example
settings.register_profile("exhume", deadline=None)
settings.load_profile("exhume")
