"""Files that an attack may be given. A run is told from another by what is in them, not by where they lie."""

import hashlib
from pathlib import Path

from exhume.data.public_images import public_images

DIGEST_BYTES = 8


def content_digest(path: Path) -> str:
    """Of a file, or of the images in a folder that a spectrum would be measured on."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for file in public_images(path) if path.is_dir() else [path]:
        content = file.read_bytes()
        digest.update(f"{len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()
