"""What a server may use, and where it keeps things."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
LARGEST_UPLOAD = 8 * 2**30
TOKEN_BYTES = 24


@dataclass(frozen=True)
class ServeSettings:
    """`private` is for uploads and for audits on their way, and is removed at the end; `out` keeps their reports.

    `largest_upload` is the size of one file in bytes, `most_files` their number. An upload of which nothing comes for
    `patience` seconds is given up, and so is one that by then brings fewer than `slowest` bytes per second.
    """

    private: Path
    out: Path
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)
    largest_upload: int = LARGEST_UPLOAD
    most_files: int = 64
    uploads_at_once: int = 6
    patience: float = 30.0
    slowest: float = 2.0**16

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a browser that was given our address calls us. Any other name is somebody else's, made to lead here."""
        return f"{HOST}:{self.port}", f"localhost:{self.port}"

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"
