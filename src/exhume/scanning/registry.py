"""All finders, in one list."""

from collections.abc import Callable, Iterator

from exhume.scanning.finders import (
    adapters,
    batch_norm,
    categories,
    data_arrays,
    embeddings,
    imputers,
    kernel_bases,
    logs,
    moving_averages,
    notebooks,
    nystroem,
    optimiser_states,
    packed_along,
    pickled,
    quantiles,
    several_checkpoints,
    starts,
    statistics,
    stored_neighbours,
    support_vectors,
    trees,
    vocabularies,
)
from exhume.scanning.finding import Finding
from exhume.scanning.inventory import Inventory, Unread

Finder = Callable[[Inventory], Iterator[Finding]] | Callable[[Inventory], Iterator[Finding | Unread]]
"""Some look into files themselves. Of one that cannot be read they say so."""
FINDERS: tuple[Finder, ...] = (
    support_vectors.find,
    stored_neighbours.find,
    kernel_bases.find,
    nystroem.find,
    pickled.find,
    data_arrays.find,
    packed_along.find,
    notebooks.find,
    categories.find,
    quantiles.find,
    vocabularies.find,
    embeddings.find,
    imputers.find,
    statistics.find,
    optimiser_states.find,
    moving_averages.find,
    several_checkpoints.find,
    starts.find,
    adapters.find,
    batch_norm.find,
    trees.find,
    logs.find,
)
READ_NUMBERS: tuple[Finder, ...] = (embeddings.find, adapters.find)
"""Those that compare the numbers of large tensors. All others go by names, shapes and small entries."""
