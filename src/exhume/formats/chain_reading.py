"""Which reader finds the dense layers of a file, by its kind."""

from collections.abc import Callable
from pathlib import Path

from exhume.errors import UsageError
from exhume.formats.chain_of_keras import chain_of_keras
from exhume.formats.chain_of_onnx import chain_of_onnx
from exhume.formats.chain_of_skops import chain_of_skops
from exhume.formats.contents import Contents
from exhume.formats.dense_chain import WAY_OUT, DenseChain, checked

READERS: dict[str, Callable[[Contents, Path], DenseChain]] = {
    "ONNX": chain_of_onnx,
    "Keras": chain_of_keras,
    "HDF5": chain_of_keras,
    "skops": chain_of_skops,
}


def chain_of(contents: Contents, path: Path) -> DenseChain:
    """The chain of an ONNX, Keras or skops file; one line for a network that is none."""
    if contents.kind not in READERS:
        raise UsageError(f"expected a network in {path}, found {contents.kind} arrays, which tell none; {WAY_OUT}")
    return checked(READERS[contents.kind](contents, path), path)
