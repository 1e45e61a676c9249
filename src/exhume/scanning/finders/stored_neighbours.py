"""Neighbours: a model that looks up the nearest training records keeps all of them."""

from collections.abc import Iterator

from exhume.formats.contents import Contents, StoredArray, StoredObject
from exhume.scanning.beside_rows import with_labels_and_names
from exhume.scanning.finding import READ_IT, Certainty, Finding, Holds, StoredRows
from exhume.scanning.inventory import Inventory
from exhume.scanning.stored_rows import rows_of, whole_numbers
from exhume.scanning.units import OWN_UNITS, before_scaler, in_own_units

REMEDY = "publish a model that does not look records up, or replace them by centroids of many records each"
KEPT_BY_CLASS = {
    "LabelPropagation": "X_",
    "LabelSpreading": "X_",
    "AffinityPropagation": "cluster_centers_",
    "DBSCAN": "components_",
    "HDBSCAN": "_raw_data",
}
"""Attributes with a general name that hold records in these classes."""
TREES = ("KDTree", "BallTree", "KDTree64", "BallTree64", "KDTree32", "BallTree32")
PRECOMPUTED = "precomputed"
"""Then rows are distances between records, and no records."""
DISTANCES = ("Scan", "CDist", "dist_nan_euclidean")
PASSED = ("Identity", "Cast", "Div", "Mul", "Reshape", "Transpose")
"""ONNX: what a constant may go through before inputs are compared with it, e.g. the scale of a kernel."""


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        kept: list[StoredObject] = []
        for model in contents.objects:
            name = "_fit_X" if "_fit_X" in model.members else KEPT_BY_CLASS.get(model.class_name)
            rows = None if name is None else rows_of(model.members.get(name), _numbers(model))
            if rows is not None and PRECOMPUTED not in (model.members.get("metric"), model.members.get("affinity")):
                kept.append(model)
                rows = with_labels_and_names(rows, model, contents)
                own = in_own_units(rows, model, contents)
                yield _finding(
                    own or rows, f"{file.name}: {_place(model)}.{name}", model.class_name, model, own is not None
                )
        yield from _trees(file.name, contents, kept)
        yield from _constants(file.name, contents)


def _trees(name: str, contents: Contents, kept: list[StoredObject]) -> Iterator[Finding]:
    """A tree of a model whose rows are found already is the same rows once more, and not reported twice."""
    for tree in contents.objects_of(*TREES):
        if any(tree.where.startswith(f"{model.where}." if model.where else "") for model in kept):
            continue
        parts = tree.members.get("content")
        array = (
            next((part for part in parts if isinstance(part, StoredArray)), None) if isinstance(parts, list) else None
        )
        rows = rows_of(array)
        if rows is not None:
            yield _finding(rows, f"{name}: {_place(tree)}", tree.class_name, None)


def _constants(name: str, contents: Contents) -> Iterator[Finding]:
    """ONNX: distances from the input to each row of a constant, of which the nearest are taken."""
    if not any(True for _ in contents.objects_of("TopK")):
        return
    for source, rows in compared_with(contents):
        yield _finding(rows, f"{name}: {source}", "nearest neighbours in ONNX", None)


def compared_with(contents: Contents) -> Iterator[tuple[str, StoredRows]]:
    """ONNX: the constants that inputs are compared with, each once, before a scaler of the inputs."""
    makers = {output: node for node in contents.objects_of(*PASSED) for output in node.members["outputs"]}
    seen = set[str]()
    waiting = [source for node in contents.objects_of(*DISTANCES) for source in node.members["inputs"]]
    found: list[tuple[str, StoredRows]] = []
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        rows = rows_of(contents.arrays.get(source))
        if rows is not None:
            found.append((source, rows))
        elif source in makers:
            waiting += makers[source].members["inputs"]
    for source, rows in found:
        yield source, before_scaler(rows, seen, contents) or rows


def _finding(rows: StoredRows, where: str, kind: str, model: StoredObject | None, own_units: bool = False) -> Finding:
    return Finding(
        rule="stored-neighbours",
        holds=Holds.RECORDS,
        certainty=Certainty.CERTAIN,
        what=f"{rows.count:,} stored records of {rows.columns:,} numbers ({kind})",
        where=where,
        gives_away=f"every record that the model looks up{', with its label' if rows.labels is not None else ''}"
        f"{', ' + OWN_UNITS if own_units else ''}",
        remedy=REMEDY,
        attack=READ_IT,
        rows=rows,
    )


def _numbers(model: StoredObject) -> tuple[int, ...] | None:
    told = whole_numbers(model.members.get("core_sample_indices_") or model.members.get("cluster_centers_indices_"))
    rows = model.array("_fit_X") or model.array("X_") or model.array("_raw_data")
    return told if rows is None else tuple(range(rows.shape[0])) if rows.shape else None


def _place(model: StoredObject) -> str:
    return model.where or model.class_name
