"""Real faces that ship inside scikit-image: nothing is downloaded."""

import torch

from exhume.data.config import DataConfig, DataSource, check_images, refuse
from exhume.data.dataset import Dataset
from exhume.data.image_set import ImageSet, as_dataset
from exhume.errors import UsageError

FACE_COUNT = 100


def load_faces(samples: int) -> ImageSet:
    """The first `samples` of the 100 gray faces of 25 × 25 pixels, in file order (a seed varies the model alone)."""
    if samples > FACE_COUNT:
        raise UsageError(f"expected at most {FACE_COUNT} samples of 'faces', found {samples}; ask for fewer")
    import skimage.data  # here: slow, and a request that is refused needs no face

    pixels = torch.from_numpy(skimage.data.lfw_subset()[:samples]).to(torch.float64)
    return ImageSet(pixels=pixels[:, None], class_names=(), class_index=torch.full((samples,), -1))


def _load(config: DataConfig) -> Dataset:
    return as_dataset(load_faces(config.samples), config)


def _check(config: DataConfig) -> None:
    refuse(config, {"classes": config.classes != (), "per_class": config.per_class is not None}, "needs classes")
    check_images(config)


FACES = DataSource("faces", _load, _check)
