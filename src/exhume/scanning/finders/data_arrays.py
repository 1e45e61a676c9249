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
OWN = {
    "truth": "training records, kept by exhume for scoring",
    "known-samples": "training records that an attack was given",
    "reconstruction": "records that an attack recovered",
    "snapshots": "records that an attack recovered on its way",
    "training-checkpoint": "the state of a training, with its momentum",
}


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        metadata = contents.values.get("exhume")
        own = metadata.get("kind") if isinstance(metadata, dict) else None
        if isinstance(own, str) and own in OWN:
            yield _own(file, own)
            continue
        for name, array in contents.arrays.items():
            last = re.split(r"[./]", name)[-1]
            rows = (
                rows_of(array)
                if NAMED.match(last) and not re.search(r"(weight|bias|embed\w*\.weight)$", name)
                else None
            )
            if rows is not None:
                yield Finding(
                    rule="data-array",
                    holds=Holds.RECORDS,
                    certainty=Certainty.LIKELY,
                    what=f"{rows.count:,} rows of {rows.columns:,} numbers under the name {name[:60]!r}",
                    where=f"{file.name}: {name}",
                    gives_away="records, if the name means what it says",
                    remedy="delete it",
                    attack=READ_IT,
                    rows=rows,
                )


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
