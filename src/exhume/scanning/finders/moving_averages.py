"""A moving average beside the raw weights: their difference is a sum of the last updates."""

from collections.abc import Iterator

from exhume.checkpoint_names import AVERAGE_KEYS
from exhume.formats.contents import Contents
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

KEYS = {*AVERAGE_KEYS, "shadow", "shadow_params"}


def find(inventory: Inventory) -> Iterator[Finding]:
    models = list(inventory.models)
    for file, contents in models:
        average = [name for name in contents.arrays if set(name.split(".")[:-1]) & KEYS]
        if average and len(average) < len(contents.arrays):
            yield _finding(f"{len(average):,} tensors of a moving average beside the weights", file.name, contents)
    named = [file for file, _ in models if "ema" in file.path.stem.lower().replace("-", "_").split("_")]
    others = [file for file, _ in models if file not in named]
    if named and others:
        yield _finding("a file of a moving average beside others", ", ".join(file.name for file in named[:3]), None)


def _finding(what: str, where: str, contents: Contents | None) -> Finding:
    return Finding(
        rule="moving-average",
        holds=Holds.LEAD,
        certainty=Certainty.LIKELY if contents is None else Certainty.CERTAIN,
        what=what,
        where=where,
        gives_away="the difference of the two: a weighted sum of the last updates; no start of training is needed",
        remedy="publish one of the two",
        attack="exhume audit: silent units on the weights minus their moving average",
    )
