"""What an optimiser keeps beside the weights: averages of gradients, which are combinations of training records."""

import re
from collections.abc import Iterator

from exhume.formats.contents import Contents
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

BUFFERS = (
    "exp_avg",
    "exp_avg_sq",
    "momentum_buffer",
    "state_sum",
    "square_avg",
    "grad_avg",
    "acc_delta",
    "max_exp_avg_sq",
)
"""As torch names them. `exp_avg` and `momentum_buffer` are the last gradients themselves, averaged."""
REMEDY = "publish the weights alone: model.state_dict() in torch, load_model(PATH, compile=False) in Keras"
REMEDY_OF_SCIKIT = "del model._optimizer before it is saved: it is for partial_fit and warm_start only"
SCIKIT_OPTIMISERS = ("AdamOptimizer", "SGDOptimizer")
_KERAS = re.compile(r"^(optimizer/vars/([2-9]|\d{2,})$|optimizer_weights/)")


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        names = _buffers(contents)
        if names:
            kinds = sorted({name.rpartition(".")[2].rpartition("/")[0] or name.rpartition(".")[2] for name in names})
            yield _finding(
                f"{len(names):,} buffers of an optimiser ({', '.join(kinds[:4])})", file.name, Certainty.CERTAIN
            )
        for optimiser in contents.objects_of(*SCIKIT_OPTIMISERS):
            what = f"the state of scikit-learn's {optimiser.class_name}"
            yield _finding(what, f"{file.name}: {optimiser.where}", Certainty.CERTAIN, REMEDY_OF_SCIKIT)
    for file in inventory.files:
        if file.program is not None:
            words = [word for word in BUFFERS if word in file.program.words]
            if words:
                yield _finding(f"a pickle that speaks of {' and '.join(words[:2])}", file.name, Certainty.LIKELY)


def _buffers(contents: Contents) -> list[str]:
    return [name for name in contents.arrays if name.rpartition(".")[2] in BUFFERS or _KERAS.search(name)]


def _finding(what: str, where: str, certainty: Certainty, remedy: str = REMEDY) -> Finding:
    return Finding(
        rule="optimiser-state",
        holds=Holds.LEAD,
        certainty=certainty,
        what=what,
        where=where,
        gives_away="gradients of the last batches: for a dense layer behind the input these are training records, "
        "weighted; no start of training is needed to use them",
        remedy=remedy,
        attack="exhume audit: silent units on the momentum buffer or exp_avg",
    )
