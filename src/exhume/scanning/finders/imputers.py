"""What an imputer fills gaps with comes from the training data."""

from collections.abc import Iterator
from dataclasses import replace

from exhume.formats.contents import StoredArray
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

LITERAL = ("most_frequent", "median")
"""Strategies whose result is a value that occurred (a median of an even number of records: nearly)."""


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        for model in contents.objects_of("SimpleImputer"):
            values, how = model.members.get("statistics_"), str(model.members.get("strategy", ""))
            count = (
                values.numbers if isinstance(values, StoredArray) else len(values) if isinstance(values, list) else 0
            )
            if count and how != "constant":
                literal = how in LITERAL
                yield _finding(count, how, f"{file.name}: {model.where or model.class_name}.statistics_", literal)
        for node in contents.objects_of("Imputer"):
            found = node.array("imputed_value_floats") or node.members.get("imputed_value_int64s")
            count = found.numbers if isinstance(found, StoredArray) else len(found) if isinstance(found, list) else 0
            if count:
                found_at = f"{file.name}: {node.where}"
                yield replace(_finding(count, "ONNX", found_at, False), gives_away="a mean, median or mode per column")


def _finding(count: int, how: str, where: str, literal: bool) -> Finding:
    return Finding(
        rule="imputer-statistics",
        holds=Holds.VALUES if literal else Holds.LEAD,
        certainty=Certainty.CERTAIN,
        what=f"{count:,} values that gaps are filled with ({how})",
        where=where,
        gives_away="one value per column that occurred in the training data" if literal else "a mean per column",
        remedy="round them, or fit the imputer on data that is public",
        attack="none: they narrow down what a record can be",
    )
