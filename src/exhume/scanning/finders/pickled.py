"""Pickles of models that are known to keep records. They are not run: the names of their classes are read as text."""

from collections.abc import Iterator

from exhume.formats.pickles import way_out
from exhume.scanning.finders import support_vectors
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

KEEPERS = {
    **dict.fromkeys(support_vectors.MACHINES, "support vectors, which are training records"),
    **dict.fromkeys(
        (
            "KNeighborsClassifier",
            "KNeighborsRegressor",
            "RadiusNeighborsClassifier",
            "RadiusNeighborsRegressor",
            "NearestNeighbors",
            "LocalOutlierFactor",
            "KNNImputer",
            "LabelPropagation",
            "LabelSpreading",
            "KernelDensity",
            "HDBSCAN",
        ),
        "all training records",
    ),
    **dict.fromkeys(
        ("KernelRidge", "KernelPCA", "GaussianProcessClassifier", "GaussianProcessRegressor"), "all training records"
    ),
    "Nystroem": "a sample of the training records",
    "DataFrame": "a table",
}


def find(inventory: Inventory) -> Iterator[Finding]:
    for file in inventory.files:
        if file.program is None:
            continue
        kept = sorted({name.rpartition(".")[2] for name in file.program.names} & set(KEEPERS))
        for name in kept:
            yield Finding(
                rule="pickled-records",
                holds=Holds.RECORDS,
                certainty=Certainty.LIKELY,
                what=f"a pickle that asks for {name}",
                where=file.name,
                gives_away=f"{name} keeps {KEEPERS[name]}; a pickle also runs code on whoever loads it",
                remedy=f"publish another model, and no pickle; {way_out(file.path, file.program.names)}",
                attack="none is needed, for whoever loads it; scan it again after the conversion to see the records",
            )
