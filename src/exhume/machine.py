"""What this machine has."""

import os

from exhume.errors import UsageError


def memory_bytes() -> int:
    """All of its memory, used or not."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_fits(bytes_needed: int, what: str) -> None:
    """Refuses what no memory of this machine could hold, before anybody asks for it or counts up to it."""
    memory = memory_bytes()
    if bytes_needed > memory:
        raise UsageError(
            f"expected {what} that fit into the {memory / 1e9:.0f} GB of this machine, found {bytes_needed / 1e9:.3g} "
            "GB; take fewer"
        )
