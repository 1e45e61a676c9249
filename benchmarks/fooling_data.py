"""Rows of data for `fooling.py`, made by plain numpy: tables, digits, faces, CIFAR-10, embeddings, and drawn ones."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from skimage.data import lfw_subset
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

HERE = Path(__file__).parent
CIFAR = "cifar-10-batches-bin/data_batch_1.bin"
Stream = np.random.Generator


def drawn(kind: str, n: int, d: int, stream: Stream) -> np.ndarray:
    """n rows in R^d of a kind that is drawn."""
    values = stream.standard_normal((n, d))
    match kind:
        case "normal":
            return values
        case "correlated":
            mix = stream.standard_normal((d, d)) * 0.5 ** np.arange(d)[:, None]
            return values @ mix + 0.05 * stream.standard_normal((n, d))
        case "shifted":  # far from centred
            return values + 3 * stream.standard_normal(d)
        case "heavy-tailed":
            return stream.standard_t(1.5, (n, d))
        case "binary":
            return np.where(values > 0, 1.0, -1.0)
        case "zero-one":
            return (values > 0).astype(float) + 0.01 * stream.standard_normal((n, d))
        case "sparse":
            kept = values * (stream.random((n, d)) < 0.2)
            return kept + 1e-3 * stream.standard_normal((n, d))
        case "clusters":
            centres = stream.standard_normal((max(2, n // 3), d))
            return centres[stream.integers(len(centres), size=n)] + 0.2 * values
        case "near-duplicates":
            half = values[: (n + 1) // 2]
            return np.concatenate([half, half[: n // 2] + 0.1 * values[: n // 2][::-1]])[:n]
        case "opposite":
            half = values[: (n + 1) // 2]
            return np.concatenate([half, -half[: n // 2] + 0.05 * values[: n // 2][::-1]])[:n]
        case "nearly in a plane":
            return values * np.where(np.arange(d) < max(2, d // 2), 1.0, 0.02)
    raise ValueError(kind)


DRAWN = ("normal", "correlated", "shifted", "heavy-tailed", "binary", "zero-one", "sparse", "clusters")


def real(kind: str, n: int, stream: Stream, data_dir: Path) -> np.ndarray:
    """n rows of a real set, columns standardised where it is a table."""
    rows = _cifar(data_dir) if kind == IMAGES else REAL[kind]()
    return rows[stream.permutation(len(rows))[:n]]


def _table(load: Callable[[], Any]) -> Callable[[], np.ndarray]:
    @cache
    def rows() -> np.ndarray:
        values = load().data.astype(float)
        return (values - values.mean(axis=0)) / values.std(axis=0).clip(1e-9)

    return rows


@cache
def _digits() -> np.ndarray:
    return load_digits().data / 16


@cache
def _faces() -> np.ndarray:
    faces = lfw_subset()[:100, :24, :24].astype(float)
    return faces.reshape(100, 8, 3, 8, 3).mean(axis=(2, 4)).reshape(100, 64)


@cache
def _cifar(data_dir: Path) -> np.ndarray:
    images = np.fromfile(data_dir / CIFAR, dtype=np.uint8, count=300 * 3073).reshape(300, 3073)[:, 1:] / 255.0
    return images.reshape(300, 3, 4, 8, 4, 8).mean(axis=(3, 5)).reshape(300, 48)


@cache
def _embeddings() -> np.ndarray:
    values = np.load(HERE / "data" / "text_embeddings.npy").astype(float)
    values = values - values.mean(axis=0)
    return values @ np.linalg.svd(values, full_matrices=False)[2][:40].T


IMAGES = "small CIFAR-10"
REAL: dict[str, Callable[[], np.ndarray]] = {
    "breast cancer": _table(load_breast_cancer),
    "diabetes": _table(load_diabetes),
    "wine": _table(load_wine),
    "digits": _digits,
    "faces": _faces,
    "text embeddings": _embeddings,
}
