"""Means and deviations of columns or classes: little by themselves, and a record where they are of one record."""

from collections.abc import Iterator

import numpy as np

from exhume.formats.contents import StoredArray, StoredObject
from exhume.scanning.finding import READ_IT, Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory
from exhume.scanning.stored_rows import rows_of

PER_CLASS = {"GaussianNB": ("theta_", "class_count_"), "KMeans": ("cluster_centers_", "labels_")}


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        for model in contents.objects_of("StandardScaler", "RobustScaler"):
            attribute = "mean_" if model.class_name == "StandardScaler" else "center_"
            values = model.array(attribute)
            if values is not None:
                yield _scaler(model, f"{file.name}: {model.where or model.class_name}.{attribute}", values)
        for node in contents.objects_of("Scaler"):
            values = node.array("offset")
            if values is not None and values.numbers:
                yield _scaler(node, f"{file.name}: {node.where}", values)
        for layer in contents.objects_of("Normalization"):
            kept = {layer.where, layer.members["group"]}
            own = (array for name, array in contents.arrays.items() if set(name.split("/")) & kept)
            values = next((array for array in own if array.shape), None)  # one number is how many were counted
            if values is not None:
                yield _scaler(layer, f"{file.name}: {layer.where}", values)
        for model in contents.objects_of(*PER_CLASS):
            means, counts = (model.array(name) for name in PER_CLASS[model.class_name])
            if means is not None and counts is not None and len(means.shape) == 2:
                counted = np.asarray(counts.read()).ravel()
                sizes = _sizes(counted, means.shape[0]) if model.class_name == "KMeans" else counted[: means.shape[0]]
                single = np.flatnonzero(sizes == 1)
                if len(single):
                    yield _single(model, f"{file.name}: {model.where or model.class_name}", means, single)


def _sizes(labels: np.ndarray, clusters: int) -> np.ndarray:
    """How many records each cluster has, by the cluster of each record."""
    numbers, counts = np.unique(labels, return_counts=True)
    sizes = np.zeros(clusters, dtype=np.int64)
    known = (numbers >= 0) & (numbers < clusters)
    sizes[numbers[known].astype(np.int64)] = counts[known]
    return sizes


def _scaler(model: StoredObject, where: str, values: StoredArray) -> Finding:
    columns = f"{values.numbers:,} column{'' if values.numbers == 1 else 's'}"
    return Finding(
        rule="column-statistics",
        holds=Holds.LEAD,
        certainty=Certainty.CERTAIN,
        what=f"centres and scales of {columns} ({model.class_name})",
        where=where,
        gives_away="means or medians of columns; they turn scaled records back into the units of the owner",
        remedy="publish them only where the columns may be known; round them",
        attack="exhume audit: recovered rows are written in these units",
    )


def _single(model: StoredObject, where: str, means: StoredArray, single: np.ndarray) -> Finding:
    rows = rows_of(StoredArray("means", (len(single), means.shape[1]), means.dtype, lambda: means.read()[single]))
    return Finding(
        rule="class-means",
        holds=Holds.RECORDS,
        certainty=Certainty.CERTAIN,
        what=f"the mean of {len(single)} classes of one record each ({model.class_name})",
        where=where,
        gives_away=f"{len(single)} training records: the mean of one record is that record",
        remedy="leave out classes of few records",
        attack=READ_IT,
        rows=rows,
    )
