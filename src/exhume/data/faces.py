"""Real faces that ship inside scikit-image: nothing is downloaded."""

import skimage.data
import torch

from exhume.data.image_set import ImageSet
from exhume.errors import UsageError

FACE_COUNT = 100


def load_faces(samples: int) -> ImageSet:
    """The first `samples` of the 100 gray faces of 25 × 25 pixels, in file order (a seed varies the model alone)."""
    if samples > FACE_COUNT:
        raise UsageError(f"expected at most {FACE_COUNT} samples of 'faces', found {samples}; ask for fewer")
    pixels = torch.from_numpy(skimage.data.lfw_subset()[:samples]).to(torch.float64)
    return ImageSet(pixels=pixels[:, None], class_names=(), class_index=torch.full((samples,), -1))
