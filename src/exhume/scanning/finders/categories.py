"""Categories of encoders: every value that a column had in training."""

from collections.abc import Iterator
from typing import Any

from exhume.formats.contents import StoredArray, StoredObject
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

COLUMNS = ("OneHotEncoder", "OrdinalEncoder", "TargetEncoder")
LABELS = ("LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer")


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        for model in contents.objects_of(*COLUMNS):
            kept = model.members.get("categories_")
            sizes = [_size(part) for part in kept] if isinstance(kept, list) else []
            if sum(sizes) and model.members.get("categories") == "auto":
                yield _finding(model, file.name, "categories_", sizes)
        for model in contents.objects_of(*LABELS):
            if model.where.rpartition(".")[2].startswith(("_label", "label_")):
                continue  # the classes of a classifier, which its answers name anyway
            size = _size(model.members.get("classes_"))
            if size:
                yield _finding(model, file.name, "classes_", [size])


def _finding(model: StoredObject, name: str, attribute: str, sizes: list[int]) -> Finding:
    per_column = f" in {len(sizes)} columns, {max(sizes):,} in the largest" if len(sizes) > 1 else ""
    return Finding(
        rule="encoder-categories",
        holds=Holds.VALUES,
        certainty=Certainty.CERTAIN,
        what=f"{sum(sizes):,} categories{per_column} ({model.class_name})",
        where=f"{name}: {model.where or model.class_name}.{attribute}",
        gives_away="every value that these columns had in training, rare ones included: names, places, codes",
        remedy="give the categories yourself (categories=[...]), or set min_frequency so that rare values share one",
        attack="none is needed: they are in the file; a recovered record is snapped to them",
    )


def _size(values: Any) -> int:
    return values.numbers if isinstance(values, StoredArray) else len(values) if isinstance(values, list) else 0
