"""The attack with a prior on images, as users ask for it."""

from dataclasses import replace
from pathlib import Path

from exhume.attacks.prior.attack import ImagePrior
from exhume.attacks.prior.spectrum import Spectrum, load_spectrum
from exhume.attacks.problem import Method
from exhume.attacks.ridge.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.data.public_images import load_public_rows
from exhume.errors import UsageError

PRIORS = ("none", "image")


def with_prior(
    method: Method,
    prior: str,
    spectrum: str | None,
    image_shape: tuple[int, int, int] | None,
    resolution: int | None = None,
) -> Method:
    """The method, or around it the search with a prior, as yet that of the 1/f law: `with_spectrum` reads another."""
    if prior not in PRIORS:
        raise UsageError(f"expected a prior out of {', '.join(PRIORS)}, found {prior!r}")
    if prior == "none":
        for option, value in (("--spectrum", spectrum), ("--resolution", resolution)):
            if value is not None:
                raise UsageError(f"expected {option} with --prior image, found it without; add --prior image")
        return method
    within = method if isinstance(method, SubspaceAttack) else None
    if within is not None and within.source == "moments":
        raise UsageError(
            "expected --prior image in the whole space or in a known subspace, found one from moments, which is only a "
            "start; leave --subspace out, or the prior"
        )
    search = method if within is None else within.inner
    if not isinstance(search, SplitNewton):
        raise UsageError(
            f"expected --prior image with --method split-newton, found {search.name}; leave one of them out"
        )
    if image_shape is None:
        raise UsageError("expected an observation of images for --prior image, found other data; leave it out")
    return ImagePrior(release=search, within=within, resolution=resolution)


def with_spectrum(method: Method, path: Path, shape: tuple[int, int, int]) -> ImagePrior:
    """The search with a prior on images that look like those of a folder, or as a file tells."""
    assert isinstance(method, ImagePrior), "a spectrum without a prior is refused by `with_prior`"
    return replace(method, spectrum=read_spectrum(path, shape))


def read_spectrum(path: Path, shape: tuple[int, int, int]) -> Spectrum:
    """Measured on the images of a folder, or read from the file of one that was measured before."""
    if path.is_dir():
        return Spectrum.measured(load_public_rows(path, shape), shape, path.name)
    if not path.exists():
        raise UsageError(f"expected a folder of images or a file for --spectrum, found nothing at {path}")
    found = load_spectrum(path)
    found.variance(shape)  # whether it is for images of this size shows at once
    return found
