"""Support vectors: a kernel machine keeps the training records that its boundary rests on, as they are."""

import math
from collections.abc import Iterator

from exhume.formats.contents import StoredArray, StoredObject
from exhume.scanning.beside_rows import with_labels_and_names
from exhume.scanning.finding import READ_IT, Certainty, Finding, Holds, StoredRows
from exhume.scanning.inventory import Inventory
from exhume.scanning.stored_rows import rows_of, whole_numbers
from exhume.scanning.units import OWN_UNITS, before_scaler, in_own_units

MACHINES = ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")
NODES = ("SVMClassifier", "SVMRegressor")
REMEDY = "publish a linear model (LinearSVC, LogisticRegression) or one on random features (RBFSampler) instead"


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        for machine in contents.objects_of(*MACHINES):
            rows = rows_of(machine.array("support_vectors_"), whole_numbers(machine.members.get("support_")))
            if rows is not None:
                rows = with_labels_and_names(rows, machine, contents)
                own = in_own_units(rows, machine, contents)
                where = f"{file.name}: {machine.where or machine.class_name}.support_vectors_"
                yield _finding(own or rows, where, machine, OWN_UNITS if own else "as the model saw them")
        for node in contents.objects_of(*NODES):
            rows = _rows_of_node(node)
            if rows is not None:
                own = before_scaler(rows, node.members["inputs"], contents)
                where = f"{file.name}: {node.where}.support_vectors"
                yield _finding(own or rows, where, node, OWN_UNITS if own else "as the model saw them")


def _rows_of_node(node: StoredObject) -> StoredRows | None:
    """ONNX keeps them in one long list: as many vectors as `vectors_per_class` or `n_supports` says."""
    flat, counts = node.array("support_vectors"), node.members.get("vectors_per_class") or [0]
    total = node.members.get("n_supports") or (sum(counts) if isinstance(counts, list) else 0)
    if flat is None or not isinstance(total, int) or total <= 0 or flat.numbers % total:
        return None
    shape = (total, math.prod(flat.shape) // total)
    return rows_of(StoredArray(flat.name, shape, flat.dtype, lambda: flat.read().reshape(shape)), None)


def _finding(rows: StoredRows, where: str, machine: StoredObject, how: str) -> Finding:
    numbered = "" if rows.numbers is None else ", with their numbers in the training set"
    return Finding(
        rule="support-vectors",
        holds=Holds.RECORDS,
        certainty=Certainty.CERTAIN,
        what=f"{rows.count:,} support vectors of {rows.columns:,} numbers ({machine.class_name})",
        where=where,
        gives_away=f"{rows.count:,} training records {how}{numbered}",
        remedy=REMEDY,
        attack=READ_IT,
        rows=rows,
    )
