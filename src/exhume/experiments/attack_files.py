"""Files that an attack may be given. Runs differ by what is in them, not by where they lie."""

import hashlib
from pathlib import Path

from exhume.attacks.prior.spectrum import FrequencySpectrum, load_spectrum
from exhume.data.public_images import load_public_rows, public_images
from exhume.errors import UsageError
from exhume.regular_file import regular

DIGEST_BYTES = 8


def content_digest(path: Path) -> str:
    """Of a file, or of the images in a folder that a spectrum would be measured on."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for file in public_images(path) if path.is_dir() else [path]:
        content = regular(file).read_bytes()
        digest.update(f"{len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


def read_spectrum(path: Path, shape: tuple[int, int, int]) -> FrequencySpectrum:
    """Measured on the images of a folder, or read from the file of one that was measured before."""
    if path.is_dir():
        return FrequencySpectrum.measured(load_public_rows(path, shape), shape, path.name)
    if not path.exists():
        raise UsageError(f"expected a folder of images or a file for --spectrum, found nothing at {path}")
    found = load_spectrum(path)
    found.variance(shape)  # whether it is for images of this size shows at once
    return found
