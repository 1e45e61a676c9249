"""Real data sets that come with scikit-learn and scikit-image, and the first images of CIFAR-10.

Each function returns the records to train on, and control records of the same kind, drawn by torch's global stream.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from zoo.victim import Records

EMBEDDINGS = Path(__file__).parents[1] / "data" / "text_embeddings.npy"
TOPICS = 4


def split(inputs: Tensor, labels: Tensor, n: int, control: int | None = None) -> tuple[Records, Records]:
    """n rows at random, and as many others."""
    order = torch.randperm(len(inputs))
    whole = Records(inputs[order].contiguous(), labels[order])
    return whole[:n], whole[n : n + (n if control is None else control)]


def digits(n: int, control: int | None = None, side: int = 8) -> tuple[Records, Records]:
    """Digits of 8 x 8 pixels in [0, 1], as rows; enlarged to images of another side where one is asked for."""
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    rows = torch.tensor(values / 16.0, dtype=torch.float32)
    if side != 8:
        rows = interpolate(rows.reshape(-1, 1, 8, 8), size=(side, side), mode="bilinear", align_corners=False)
    return split(rows, torch.tensor(labels), n, control)


def faces(n: int) -> tuple[Records, Records]:
    """25 x 25 patches, faces and others, raw in [0, 1]."""
    from skimage.data import lfw_subset

    values = torch.tensor(lfw_subset(), dtype=torch.float32).reshape(200, -1)
    return split(values, (torch.arange(200) < 100).long(), n)


def cifar(folder: Path, n: int, others: int = 0) -> tuple[Records, Records, Records]:
    """CIFAR-10 images of 3 x 32 x 32 in [-1, 1], as in PyTorch's tutorial: records, control, and others of the rest."""
    path = folder / "cifar-10-batches-bin" / "data_batch_1.bin"
    if not path.is_file():
        raise FileNotFoundError(f"expected CIFAR-10 in {folder}, found no {path.name}; give --data-dir")
    raw = np.fromfile(path, dtype=np.uint8).reshape(-1, 3073)
    images = torch.tensor(raw[:, 1:].reshape(-1, 3, 32, 32) / 127.5 - 1, dtype=torch.float32)
    order = torch.randperm(len(images))
    whole = Records(images[order], torch.tensor(raw[:, 0].astype(np.int64))[order])
    return whole[:n], whole[n : 2 * n], whole[2 * n : 2 * n + others]


def flat(records: Records) -> Records:
    return Records(records.inputs.flatten(start_dim=1), records.labels)


def table(name: str, n: int) -> tuple[Records, Records]:
    """A table of scikit-learn, standardised column by column over all its rows; numbers to predict are, too."""
    from sklearn import datasets

    values, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    rows = torch.tensor((values - values.mean(0)) / values.std(0), dtype=torch.float32)
    if np.issubdtype(labels.dtype, np.integer):
        return split(rows, torch.tensor(labels), n)
    return split(rows, torch.tensor((labels - labels.mean()) / labels.std(), dtype=torch.float32)[:, None], n)


def texts(n: int) -> tuple[Records, Records]:
    """Embeddings of real sentences, 384 numbers of norm 1; the label is the nearest of a few of them."""
    rows = torch.tensor(np.load(EMBEDDINGS), dtype=torch.float32)
    return split(rows, (rows @ rows[:TOPICS].T).argmax(dim=1), n)
