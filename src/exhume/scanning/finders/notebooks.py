"""Notebooks keep what they printed: the first rows of a table, pictures of samples, paths."""

from collections.abc import Iterator

from exhume.errors import ExhumeError
from exhume.formats.json_file import read_json_value
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, ScannedFile


def find(inventory: Inventory) -> Iterator[Finding]:
    for file in inventory.files:
        if file.suffix == ".ipynb":
            outputs, pictures, tables = _count(file)
            if outputs:
                seen = [f"{pictures} pictures"] * bool(pictures) + [f"{tables} tables"] * bool(tables)
                yield Finding(
                    rule="notebook",
                    holds=Holds.RECORDS if pictures or tables else Holds.LEAD,
                    certainty=Certainty.LIKELY if tables else Certainty.POSSIBLE,
                    what=f"a notebook with {outputs} outputs" + (f", {' and '.join(seen)} among them" if seen else ""),
                    where=file.name,
                    gives_away="what was printed while the model was made: rows of tables, pictures of samples, paths",
                    remedy="clear its outputs: jupyter nbconvert --clear-output --inplace NOTEBOOK",
                    attack="none is needed: open it",
                )


def _count(file: ScannedFile) -> tuple[int, int, int]:
    """Outputs, pictures among them, and tables as pandas shows them."""
    try:
        content = read_json_value(file.path)
    except ExhumeError:
        return 0, 0, 0
    cells = content.get("cells") if isinstance(content, dict) else None
    outputs = pictures = tables = 0
    for cell in cells if isinstance(cells, list) else []:
        printed = cell.get("outputs") if isinstance(cell, dict) else None
        for output in printed if isinstance(printed, list) else []:
            data = output.get("data") if isinstance(output, dict) else None
            kinds = list(data) if isinstance(data, dict) else []
            outputs += 1
            pictures += any(str(kind).startswith("image/") for kind in kinds)
            tables += "text/html" in kinds and "<table" in str(data["text/html"] if isinstance(data, dict) else "")
    return outputs, pictures, tables
