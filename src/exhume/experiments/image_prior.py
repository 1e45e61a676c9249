"""The attack with a prior on images, as users ask for it."""

from pathlib import Path

from exhume.attacks.prior.attack import ImagePrior
from exhume.attacks.prior.spectrum import Spectrum, load_spectrum
from exhume.attacks.problem import Method
from exhume.attacks.ridge.split_newton import SplitNewton
from exhume.data.public_images import load_public_rows
from exhume.errors import UsageError
from exhume.observation import Observation

PRIORS = ("none", "image")


def with_prior(method: Method, prior: str, spectrum: str | None, observation: Observation) -> Method:
    """The method, or around it the search with a prior; `spectrum` is a folder of public images or a file."""
    if prior not in PRIORS:
        raise UsageError(f"expected a prior out of {', '.join(PRIORS)}, found {prior!r}")
    if prior == "none":
        if spectrum is not None:
            raise UsageError("expected --spectrum with --prior image, found it without; add --prior image")
        return method
    if not isinstance(method, SplitNewton):
        raise UsageError(
            f"expected --prior image with --method split-newton, found {method.name}; leave --method out, or the prior"
        )
    if observation.image_shape is None:
        raise UsageError("expected an observation of images for --prior image, found other data; leave it out")
    if spectrum is None:
        return ImagePrior(release=method)
    return ImagePrior(read_spectrum(Path(spectrum), observation.image_shape), method)


def read_spectrum(path: Path, shape: tuple[int, int, int]) -> Spectrum:
    """Measured on the images of a folder, or read from the file of one that was measured before."""
    if path.is_dir():
        return Spectrum.measured(load_public_rows(path, shape), shape, path.name)
    if not path.exists():
        raise UsageError(f"expected a folder of images or a file for --spectrum, found nothing at {path}")
    found = load_spectrum(path)
    found.variance(shape)  # whether it is for images of this size shows at once
    return found
