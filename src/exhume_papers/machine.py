"""What would never fit into this machine."""

from exhume.errors import UsageError
from exhume.machine import memory_bytes


def check_fits(bytes_needed: int, what: str) -> None:
    """Refuses what no memory of this machine could hold, before anybody asks for it or counts up to it."""
    memory = memory_bytes()
    if bytes_needed > memory:
        raise UsageError(
            f"expected {what} that fit into the {memory / 1e9:.0f} GB of this machine, found {bytes_needed / 1e9:.3g} "
            "GB; take fewer"
        )
