"""Data of many kinds for `silent_certificate.py`: images, real tables, text embeddings, and drawn tables that are hard.

Real tables are scikit-learn's, which the extra `dev` installs: where it is missing, problems with them are left out,
and this is said.

Text embeddings come from `text_embeddings.py`.
"""

import math
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from ordinary_networks import cifar, faces
from torch import Tensor

EMBEDDINGS = Path(__file__).parent / "data" / "text_embeddings.npy"
IMAGES = ("cifar", "small cifar", "faces", "raw faces")
TABLES = ("breast cancer", "digits", "diabetes", "wine")
REAL = tuple(f"{name}{how}" for name in TABLES for how in ("", ", raw"))
DRAWN = ("correlated", "heavy-tailed", "binary", "sparse", "clusters", "near-duplicates")
TEXT = "text embeddings"


def missing(kind: str, text: Path) -> str | None:
    """Why there is no data of a kind here, if there is none."""
    if kind in REAL and not find_spec("sklearn"):
        return "scikit-learn is not installed"
    return f"{text} is not there" if kind == TEXT and not text.exists() else None


def data(kind: str, n: int, columns: int, seed: int, data_dir: Path, text: Path) -> tuple[Tensor, Tensor]:
    """n rows and their labels; `columns` are those of drawn tables. A kind with fewer rows gives what it has."""
    if kind in ("cifar", "small cifar"):
        rows, labels = cifar(data_dir, n, seed * 37 % 900)  # the first 1,000 images will do
        return (rows if kind == "cifar" else pooled(rows, 4)), labels
    if kind in ("faces", "raw faces"):
        return faces(min(n, 200), seed, raw=kind == "raw faces")
    if kind == TEXT:
        return _chosen(torch.tensor(np.load(text), dtype=torch.float32), torch.arange(300) % 3, n, seed)
    if kind in REAL:
        rows, labels = _real(kind.removesuffix(", raw"), raw=kind.endswith("raw"))
        return _chosen(rows, labels, n, seed)
    return drawn(kind, n, columns, seed), torch.arange(n) % (2, 3, 10)[seed % 3]


def pooled(rows: Tensor, block: int) -> Tensor:
    """Images of 32 x 32 at a smaller size, the mean of each block."""
    images = rows.reshape(len(rows), 3, 32, 32)
    return torch.nn.functional.avg_pool2d(images, block).reshape(len(rows), -1)


def drawn(kind: str, n: int, d: int, seed: int) -> Tensor:
    """No row is zero: its norm is what errors are over."""
    stream = torch.Generator().manual_seed(seed)
    values = torch.randn(n, d, generator=stream)
    match kind:
        case "correlated":
            rows = values @ torch.randn(d, d, generator=stream) / math.sqrt(d) + torch.randn(d, generator=stream)
        case "heavy-tailed":
            rows = values / torch.rand(n, d, generator=stream).clamp_min(0.02)
        case "binary":
            rows = (values > 0.5).float()
        case "sparse":
            rows = values * (torch.rand(n, d, generator=stream) < 0.1)
        case "clusters":
            rows = torch.randn(3, d, generator=stream)[torch.arange(n) % 3] + 0.2 * values
        case "near-duplicates":
            # every second row resembles the one before, by 0.3 % to 30 % of its norm
            apart = 10 ** (-2.5 + 2 * torch.rand(n, 1, generator=stream))
            rows = torch.where(torch.arange(n)[:, None] % 2 == 1, values.roll(1, 0) + apart * values, values)
        case _:
            raise ValueError(f"expected one of {', '.join(DRAWN)}, found {kind}")
    empty = rows.norm(dim=1) == 0
    rows[empty, torch.arange(n)[empty] % d] = 1.0
    return rows


def _chosen(rows: Tensor, labels: Tensor, n: int, seed: int) -> tuple[Tensor, Tensor]:
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:n]
    return rows[chosen], labels[chosen]


def _real(name: str, raw: bool) -> tuple[Tensor, Tensor]:
    """Columns at mean 0 and standard deviation 1 unless raw; a number to predict becomes above or below its median."""
    found = getattr(import_module("sklearn.datasets"), f"load_{name.replace(' ', '_')}")()
    rows, wanted = torch.tensor(found.data, dtype=torch.float32), torch.tensor(found.target)
    labels = (wanted > wanted.median()).long() if name == "diabetes" else wanted.long()
    if not raw:
        rows = (rows - rows.mean(dim=0)) / rows.std(dim=0).clamp_min(1e-6)
    return rows, labels
