"""Nystroem's features compare an input with a sample of the training set, and keep that sample."""

from collections.abc import Iterator

from exhume.scanning.finding import READ_IT, Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory
from exhume.scanning.stored_rows import rows_of, whole_numbers


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        for model in contents.objects_of("Nystroem"):
            rows = rows_of(model.members.get("components_"), whole_numbers(model.members.get("component_indices_")))
            if rows is not None:
                yield Finding(
                    rule="nystroem-components",
                    holds=Holds.RECORDS,
                    certainty=Certainty.CERTAIN,
                    what=f"{rows.count:,} training records of {rows.columns:,} numbers (Nystroem)",
                    where=f"{file.name}: {model.where or model.class_name}.components_",
                    gives_away="a random sample of the training set, record by record",
                    remedy="use RBFSampler, whose features are drawn and not taken from the data",
                    attack=READ_IT,
                    rows=rows,
                )
