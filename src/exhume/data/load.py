"""From a request to a data set: the one way in."""

from pathlib import Path

from exhume.data.config import SOURCES, DataConfig
from exhume.data.dataset import Dataset
from exhume.data.folder import load_folder
from exhume.data.image_set import as_dataset
from exhume.errors import UsageError


def load(config: DataConfig) -> Dataset:
    """The data set that a configuration asks for, ready to train on.

    >>> load(DataConfig(name="sphere", samples=3, dim=5)).inputs.norm(dim=1).square().round().tolist()
    [5.0, 5.0, 5.0]
    """
    source = SOURCES.get(config.name)
    if source is not None:
        return source.load(config)
    folder = Path(config.name).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"expected the data set {', '.join(sorted(SOURCES.names()))} or a folder of images, found {config.name!r}, "
            f"{'a file' if folder.exists() else 'which does not exist'}"
        )
    return as_dataset(load_folder(folder, config), config)
