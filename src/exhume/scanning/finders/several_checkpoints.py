"""Several states of one model: their difference is what training did between them."""

from collections.abc import Iterator

from exhume.formats.contents import Contents
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, ScannedFile

FEWEST_TENSORS = 2


def find(inventory: Inventory) -> Iterator[Finding]:
    alike: dict[frozenset[tuple[str, tuple[int, ...]]], list[ScannedFile]] = {}
    for file, contents in inventory.models:
        shapes = _weights(contents)
        if len(shapes) >= FEWEST_TENSORS:
            alike.setdefault(shapes, []).append(file)
    for shapes, files in alike.items():
        if len(files) > 1:
            shown = ", ".join(file.name for file in files[:4]) + (
                f" and {len(files) - 4} more" if len(files) > 4 else ""
            )
            yield Finding(
                rule="several-checkpoints",
                holds=Holds.LEAD,
                certainty=Certainty.LIKELY,
                what=f"{len(files)} states of one model ({len(shapes)} tensors of the same names and shapes)",
                where=shown,
                gives_away="the change between two states: whoever knows both knows a start of training",
                remedy="publish the last one alone",
                attack=f"exhume audit {files[-1].name} --initial {files[0].name}: silent units, span of the features",
            )


def _weights(contents: Contents) -> frozenset[tuple[str, tuple[int, ...]]]:
    """Names and shapes, without what training scripts put in front of them and beside them."""
    found = set()
    for name, array in contents.arrays.items():
        parts = name.split(".")
        if parts[0] in ("optimizer", "optimizer_state_dict", "ema", "scheduler") or name.startswith("optimizer"):
            continue
        while parts and parts[0] in ("state_dict", "model_state_dict", "model", "module", "_orig_mod"):
            parts = parts[1:]
        if len(array.shape) >= 1 and parts:
            found.add((".".join(parts), array.shape))
    return frozenset(found)
