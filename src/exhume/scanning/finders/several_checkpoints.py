"""Several states of one model: their difference is what training did between them."""

from collections.abc import Iterator

from exhume.checkpoint_names import own_name
from exhume.formats.chain_of_tensors import natural
from exhume.formats.contents import Contents
from exhume.scanning.finders.optimiser_states import BUFFERS
from exhume.scanning.finders.starts import named_first
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, ScannedFile

FEWEST_TENSORS = 2
BESIDE = ("optimizer", "ema.", "scheduler")


def find(inventory: Inventory) -> Iterator[Finding]:
    alike: dict[frozenset[tuple[str, tuple[int, ...]]], list[ScannedFile]] = {}
    for file, contents in inventory.models:
        shapes = _weights(contents)
        if len(shapes) >= FEWEST_TENSORS:
            alike.setdefault(shapes, []).append(file)
    for shapes, files in alike.items():
        if len(files) > 1:
            files = sorted(files, key=lambda file: (not named_first(file.name), natural(file.name)))
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
        if name.startswith(BESIDE) or name.rpartition(".")[2] in BUFFERS:
            continue
        own = own_name(name)
        if len(array.shape) >= 1 and own:
            found.add((own, array.shape))
    return frozenset(found)
