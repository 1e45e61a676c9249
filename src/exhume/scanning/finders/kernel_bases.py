"""Kernel ridge, kernel PCA and Gaussian processes predict by a kernel with every training record, and keep them."""

from collections.abc import Iterator

from exhume.scanning.finders.stored_neighbours import DISTANCES
from exhume.scanning.finding import READ_IT, Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory
from exhume.scanning.stored_rows import rows_of

ATTRIBUTES = ("X_fit_", "X_train_")
REMEDY = "publish a model on random features (RBFSampler) or inducing points that are no records"


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        for model in contents.objects:
            for name in ATTRIBUTES:
                rows = rows_of(model.members.get(name))
                if rows is not None:
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
        for node in contents.objects_of(*DISTANCES):
            for source in node.members["inputs"]:
                rows = rows_of(contents.arrays.get(source))
                if rows is not None:
                    yield Finding(
                        rule="kernel-basis",
                        holds=Holds.RECORDS,
                        certainty=Certainty.LIKELY,
                        what=f"{rows.count:,} rows of {rows.columns:,} numbers that inputs are compared with (ONNX)",
                        where=f"{file.name}: {source}",
                        gives_away="the training records of a kernel model, unless they are centres of clusters",
                        remedy=REMEDY,
                        attack=READ_IT,
                        rows=rows,
                    )
