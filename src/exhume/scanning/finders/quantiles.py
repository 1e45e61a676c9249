"""Quantiles, extremes and edges of bins: sorted values of single columns."""

from collections.abc import Iterator
from typing import Any

from exhume.formats.contents import StoredArray, StoredObject
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

KEPT = {
    "QuantileTransformer": ("quantiles_", "quantiles of each column, the smallest and largest value among them"),
    "MinMaxScaler": ("data_min_", "the smallest and largest value of each column"),
    "MaxAbsScaler": ("max_abs_", "the largest absolute value of each column"),
    "KBinsDiscretizer": ("bin_edges_", "edges of bins: the smallest and largest value of each column among them"),
    "IsotonicRegression": ("X_thresholds_", "training inputs at which the fitted line bends"),
}


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        for model in contents.objects_of(*KEPT):
            attribute, gives_away = KEPT[model.class_name]
            count = _count(model.members.get(attribute))
            if count:
                yield _finding(
                    count, model.class_name, f"{file.name}: {model.where or model.class_name}.{attribute}", gives_away
                )
        for model in contents.objects_of("SplineTransformer"):
            splines = model.members.get("bsplines_")
            knots = [part.array("_t") for part in splines or () if isinstance(part, StoredObject)]
            count = sum(found is not None for found in knots)
            if count and isinstance(model.members.get("knots"), str):  # knots that the user chose tell nothing
                where = f"{file.name}: {model.where or model.class_name}.bsplines_"
                yield _finding(2 * count, model.class_name, where, KEPT["MinMaxScaler"][1])
        quantiles = contents.arrays.get("quantiles") if contents.kind == "ONNX" else None
        if quantiles is not None and quantiles.numbers:
            yield _finding(quantiles.numbers, "ONNX", f"{file.name}: {quantiles.name}", KEPT["QuantileTransformer"][1])


def _finding(count: int, kind: str, where: str, gives_away: str) -> Finding:
    return Finding(
        rule="quantiles",
        holds=Holds.VALUES,
        certainty=Certainty.CERTAIN,
        what=f"{count:,} values in order ({kind})",
        where=where,
        gives_away=gives_away,
        remedy="fit it on public data, clip columns at fixed bounds, or round the values",
        attack="none: extremes are often one person each; the others narrow down what a record can be",
    )


def _count(values: Any) -> int:
    if isinstance(values, list):
        return sum(map(_count, values))
    return values.numbers if isinstance(values, StoredArray) else 0
