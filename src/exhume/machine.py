"""What this machine has."""

import os


def memory_bytes() -> int:
    """All of its memory, used or not."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
