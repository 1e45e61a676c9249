"""One layer of a LoRA adapter as a head: which records did it read?

B began at zero, and every step of gradient descent adds Σ_i c_i (A x_i)ᵀ to it. The steps of A lie in the rows of
B, so A moves the span of all A x_i nowhere but into itself, and with plain steps or momentum

    rows of B(T) ⊂ span{A(T) x_i},    exactly:

B is a head that began at zero, over the r numbers A x of a record. Where fewer than r records were trained on, B has
their number as its rank, and a record belongs to them if A x lies in its rows. Where B shows all r dimensions, A itself
is what is left: A(T) = A(0) + Σ_i a_i x_iᵀ, with a start of the size of the change.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.probes.embedding_span import embedding_span
from exhume.attacks.probes.ranking import Probe
from exhume.data.records import Records
from exhume.errors import ExhumeError, UsageError
from exhume.formats.adapter import Adapter, LowRank
from exhume.networks.head import with_bias


@dataclass(frozen=True, eq=False, repr=False)
class AdaptedLayer:
    """`keeps`: A, where the probe is over A x. `whole`: whether the layer was trained as a whole."""

    name: str
    probe: Probe
    keeps: Float[Tensor, "r d"] | None = None
    whole: bool = False

    def read(self, records: Records) -> Records:
        return records if self.keeps is None else replace(records, rows=records.rows.double() @ self.keeps.T)


def layer_of(adapter: Adapter, asked: str | None, width: int, folder: Path) -> AdaptedLayer:
    """The layer of that name, or the only one that reads so many numbers."""
    adapted = {layer.name: layer for layer in adapter.changes}
    widths = {name: layer.width for name, layer in adapted.items()}
    for name, array in adapter.whole.items():
        if name.endswith(".weight") and len(array.shape) == 2:
            widths[name.removesuffix(".weight")] = array.shape[1]
    fitting = [name for name, reads in widths.items() if reads == width and asked in (None, name)]
    if len(fitting) != 1:
        some = ", ".join(f"{name} ({reads})" for name, reads in list(widths.items())[:6])
        which = f"a layer {asked!r}" if asked else "one layer"
        raise UsageError(
            f"expected {which} in {folder} that reads the {width} numbers of a record, found {len(fitting)}; its "
            f"layers and what they read: {some}; name one with --layer"
        )
    name = fitting[0]
    return _of_factors(name, adapted[name]) if name in adapted else _of_whole(name, adapter)


def _of_factors(name: str, layer: LowRank) -> AdaptedLayer:
    down, up = (torch.from_numpy(part) for part in layer.factors())
    if not bool(up.any()):
        raise ExhumeError(f"expected an adapter that was trained, found B of {name!r} at its start, zero")
    if embedding_span(up).rank < layer.rank:
        return AdaptedLayer(name, Probe(up), down)
    return AdaptedLayer(name, Probe(down))


def _of_whole(name: str, adapter: Adapter) -> AdaptedLayer:
    weight, bias = (adapter.whole.get(f"{name}.{part}") for part in ("weight", "bias"))
    assert weight is not None
    matrix = torch.from_numpy(weight.read().copy()).double()
    constant = bias is not None and bias.shape == weight.shape[:1]
    head = with_bias(matrix, torch.from_numpy(bias.read().copy()).double() if constant and bias is not None else None)
    if not bool(torch.isfinite(head).all()):
        raise ExhumeError(f"expected finite numbers of {name!r}, found NaN or infinite ones")
    return AdaptedLayer(name, Probe(head, head, constant=constant), whole=True)
