"""Arrays beside or inside a model that are named as data is, and files that exhume itself wrote."""

import re
from collections.abc import Iterator

from exhume.scanning.finding import READ_IT, Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, ScannedFile
from exhume.scanning.stored_rows import rows_of

NAMED = re.compile(
    r"^(x|inputs?|images?|samples?|records?|rows|data|dataset|features_train|embeddings?|"
    r"(x|y|data|inputs?|images?|features|embeddings?)?_?(train|training|val|valid|test)(_?(x|data|set|inputs|images|features))?)$",
    re.IGNORECASE,
)
STORES = re.compile(
    r"^(replay_buffer|support_set|memory_bank|episodic_memory|exemplars?(_set)?|coreset|core_set|"
    r"inducing_(points?|inputs?))$",
    re.IGNORECASE,
)
"""What a model keeps records in, under any name below it."""
LEARNT = ("inducing",)
"""These begin at records, and may have been trained away from them."""
_WEIGHTS = re.compile(r"(weight|bias|kernel|kernel:0)$")
OWN = {
    "truth": "training records, kept by exhume for scoring",
    "known-samples": "training records that an attack was given",
    "reconstruction": "records that an attack recovered",
    "snapshots": "records that an attack recovered on its way",
    "training-checkpoint": "the state of a training, with its momentum",
}


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        own = contents.values.get("exhume")
        kind = own.get("kind") if isinstance(own, dict) else None
        if isinstance(kind, str) and kind in OWN:
            yield _own(file, kind)
            continue
        for name, array in contents.arrays.items():
            shown = name if _as_data(name) else array.name  # an ONNX constant has a name of its own
            told = _as_data(shown)
            rows = None if told is None else rows_of(array)
            if rows is not None:
                yield Finding(
                    rule="data-array",
                    holds=Holds.RECORDS,
                    certainty=Certainty.POSSIBLE if str(told).startswith(LEARNT) else Certainty.LIKELY,
                    what=f"{rows.count:,} rows of {rows.columns:,} numbers under the name {shown[:60]!r}",
                    where=f"{file.name}: {name}",
                    gives_away="records, if the name means what it says",
                    remedy="delete it",
                    attack=READ_IT,
                    rows=rows,
                )


def _as_data(name: str) -> str | None:
    """The part of a name that says that data is under it: its last part that is no number, or a store of records."""
    if _WEIGHTS.search(name):
        return None
    parts = [part.lower() for part in re.split(r"[./]", name)]
    while len(parts) > 1 and parts[-1].isdigit():  # train_inputs.0
        parts.pop()
    return next((part for part in parts if STORES.match(part)), parts[-1] if NAMED.match(parts[-1]) else None)


def _own(file: ScannedFile, kind: str) -> Finding:
    return Finding(
        rule="exhume-file",
        holds=Holds.RECORDS,
        certainty=Certainty.CERTAIN,
        what=f"a file of exhume's own: {kind}",
        where=file.name,
        gives_away=OWN[kind],
        remedy="delete it: it is for the owner alone",
        attack=READ_IT.partition(", and")[0],
    )
