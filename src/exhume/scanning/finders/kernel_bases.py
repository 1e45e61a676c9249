"""Kernel ridge, kernel PCA and Gaussian processes predict by a kernel with every training record, and keep them."""

from collections.abc import Iterator

from exhume.formats.contents import Contents, StoredObject
from exhume.scanning.beside_rows import with_labels_and_names
from exhume.scanning.finders.stored_neighbours import PRECOMPUTED, compared_with
from exhume.scanning.finding import READ_IT, Certainty, Finding, Holds, StoredRows
from exhume.scanning.inventory import Inventory
from exhume.scanning.stored_rows import rows_of

ATTRIBUTES = ("X_fit_", "X_train_")
REMEDY = "publish a model on random features (RBFSampler) or inducing points that are no records"


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        for model in contents.objects:
            if PRECOMPUTED in (model.members.get("kernel"), model.members.get("metric")):
                yield from _values_alone(model, file.name)
                continue
            for name in ATTRIBUTES:
                rows = rows_of(model.members.get(name))
                if rows is not None:
                    rows = with_labels_and_names(rows, model, contents)
                    targets = ", and their targets in y_train_" if "y_train_" in model.members else ""
                    yield Finding(
                        rule="kernel-basis",
                        holds=Holds.RECORDS,
                        certainty=Certainty.CERTAIN,
                        what=f"{rows.count:,} training records of {rows.columns:,} numbers ({model.class_name})",
                        where=f"{file.name}: {model.where or model.class_name}.{name}",
                        gives_away=f"the whole training set as the kernel saw it{targets}",
                        remedy=REMEDY,
                        attack=READ_IT,
                        rows=rows,
                    )
        if any(True for _ in contents.objects_of("TopK")):
            continue  # neighbours, which have a finder of their own
        for source, rows in compared_with(contents):
            yield _of_onnx(rows, f"{file.name}: {source}", Certainty.LIKELY)
        for source, rows in multiplied_with(contents):
            yield _of_onnx(rows, f"{file.name}: {source}", Certainty.POSSIBLE)


def multiplied_with(contents: Contents) -> Iterator[tuple[str, StoredRows]]:
    """ONNX: constants that are turned and then multiplied with, as a kernel of products has them; so do some layers."""
    turned = {
        output: source
        for node in contents.objects_of("Transpose")
        for output, source in zip(node.members["outputs"], node.members["inputs"], strict=False)
    }
    for node in contents.objects_of("MatMul"):
        for source in [turned[name] for name in node.members["inputs"] if name in turned]:
            rows = rows_of(contents.arrays.get(source))
            if rows is not None:
                yield source, rows


def _of_onnx(rows: StoredRows, where: str, certainty: Certainty) -> Finding:
    kernel = certainty is Certainty.LIKELY
    return Finding(
        rule="kernel-basis",
        holds=Holds.RECORDS,
        certainty=certainty,
        what=f"{rows.count:,} rows of {rows.columns:,} numbers that inputs are compared with (ONNX)",
        where=where,
        gives_away="the training records of a kernel model, unless they are "
        + ("centres of clusters" if kernel else "a layer of a network"),
        remedy=REMEDY,
        attack=READ_IT,
        rows=rows,
    )


def _values_alone(model: StoredObject, file: str) -> Iterator[Finding]:
    for name in (*ATTRIBUTES, "_fit_X"):
        rows = rows_of(model.members.get(name))
        if rows is not None:
            yield Finding(
                rule="kernel-values",
                holds=Holds.LEAD,
                certainty=Certainty.CERTAIN,
                what=f"kernel values or distances between {rows.count:,} training records ({model.class_name})",
                where=f"{file}: {model.where or model.class_name}.{name}",
                gives_away="how alike records are; of a linear kernel or of distances, all records up to a rotation",
                remedy=REMEDY,
                attack="not in exhume: an eigenvalue decomposition (multidimensional scaling)",
            )
