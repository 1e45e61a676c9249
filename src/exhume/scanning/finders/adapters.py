"""Adapters: the change that fine-tuning made, as the file itself, with its start."""

from collections.abc import Iterator, Sequence

import numpy as np

from exhume.formats.adapter import CONFIG, TENSORS, Adapter, LowRank, read_adapter
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

MOST_NUMBERS = 2**24
"""Of a factor whose rank is looked at: 2 s on one core."""
SMALL, GAP = 1e-3, 30.0
"""A drop of singular values by this factor, to a share this small, is the edge to rounding."""
BIAS = ".bias"
REMEDY = "nothing can be left out of an adapter; train it with differential privacy, or keep it"


def find(inventory: Inventory) -> Iterator[Finding]:
    for file in inventory.files:
        if file.path.name == CONFIG and any(file.path.with_name(name).is_file() for name in TENSORS):
            found = read_adapter(file.path.parent)
            place = file.name.removesuffix(CONFIG) + found.file.name
            if found.changes:
                yield _change(found, place)
            yield from _tokens(found, place)
            biases = {name for name in found.whole if name.endswith(BIAS)}
            biases = {name for name in biases if name.removesuffix(BIAS) + ".weight" not in found.whole}
            if whole := [name for name in found.whole if name not in biases]:
                yield _whole(whole, place)
            if biases:
                yield _biases(len(biases), place)


def _change(found: Adapter, where: str) -> Finding:
    ranks = sorted({layer.rank for layer in found.changes})
    shown = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
    fewest = min(((_dimensions(layer), layer) for layer in found.changes), key=lambda pair: pair[0] - pair[1].rank)
    fewer = ""
    if fewest[0] < fewest[1].rank:
        fewer = (
            f"; that of {fewest[1].name} has {fewest[0]} of {fewest[1].rank} dimensions: {fewest[0]} records left a "
            "trace in it, or more that are alike, and it shows which"
        )
    count = len(found.changes)
    return Finding(
        rule="adapter",
        holds=Holds.LEAD,
        certainty=Certainty.CERTAIN,
        what=f"the change of {count:,} layer{'' if count == 1 else 's'}, by LoRA of rank {shown}",
        where=where,
        gives_away=f"what training changed, exactly, with its start; of each input at most {ranks[-1]} numbers per "
        f"layer{fewer}",
        remedy=REMEDY,
        attack="exhume rank FOLDER --candidates DATA: which records the layer was trained on",
    )


def _dimensions(layer: LowRank) -> int:
    """The rank of B, where it shows fewer dimensions than it could."""
    if max(layer.up.numbers, layer.down.numbers) > MOST_NUMBERS:
        return layer.rank
    _, up = layer.factors()
    if up.shape[0] <= layer.rank + 1:  # outputs that add up to zero take a dimension as well
        return layer.rank
    values = np.linalg.svd(up, compute_uv=False)
    if values[0] == 0:
        return layer.rank  # B as it began: nothing was trained
    falls = [
        (values[at] / max(values[at + 1], np.finfo(float).eps * values[0]), at + 1)
        for at in range(len(values) - 1)
        if values[at + 1] <= SMALL * values[0]
    ]
    fall, rank = max(falls, default=(0.0, layer.rank))
    return rank if fall >= GAP else layer.rank


def _tokens(found: Adapter, where: str) -> Iterator[Finding]:
    for name, array in found.tokens.items():
        if array.numbers > MOST_NUMBERS or len(array.shape) != 2:
            continue
        used = int(np.asarray(array.read()).any(axis=0).sum())
        if used < array.shape[1]:
            yield Finding(
                rule="adapter-tokens",
                holds=Holds.VALUES,
                certainty=Certainty.CERTAIN,
                what=f"{used:,} of {array.shape[1]:,} tokens of {name} that an adapter was trained on",
                where=f"{where}: {name}.lora_embedding_A",
                gives_away="the vocabulary of the training texts: columns of other tokens are still zero",
                remedy="leave embeddings out of target_modules",
                attack="none is needed: columns that are not zero",
            )


def _whole(names: Sequence[str], where: str) -> Finding:
    layers = sorted({name.rpartition(".")[0] or name for name in names})
    return Finding(
        rule="adapter-whole-layer",
        holds=Holds.LEAD,
        certainty=Certainty.CERTAIN,
        what=f"{', '.join(layers[:4])}: trained as a whole, beside an adapter",
        where=where,
        gives_away="all that a layer of its size gives away; a new head shows which records it was trained on",
        remedy=REMEDY,
        attack="exhume rank FOLDER --candidates DATA --layer NAME; exhume audit FOLDER --initial BASE",
    )


def _biases(count: int, where: str) -> Finding:
    return Finding(
        rule="adapter-biases",
        holds=Holds.LEAD,
        certainty=Certainty.CERTAIN,
        what=f"the biases of {count:,} layer{'' if count == 1 else 's'}: trained, beside an adapter",
        where=where,
        gives_away="little: of each layer a sum over all records, one number per unit",
        remedy="train adapters with bias='none'",
        attack="none yet",
    )
