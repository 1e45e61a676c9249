"""What defences of a head make of the other layers of the model that is published with it.

Rounding to 16 bits and noise change every number; int8 changes matrices, and biases stay. Pruning removes units, not
numbers: `auditing/pruned_layers.py`.
"""

import torch
from torch import Tensor

from exhume.defences.kinds import Defence, Noise, Rounding
from exhume.defences.quantisation import quantise


def defended_weights(weights: Tensor, defences: tuple[Defence, ...], stream: torch.Generator) -> Tensor:
    """The weights or the bias of one layer, after these defences. `stream` gives the noise.

    >>> from exhume.defences.kinds import parse_defences
    >>> defended_weights(torch.tensor([[1.27, 0.012]]), parse_defences("int8"), torch.Generator())
    tensor([[1.2700, 0.0100]])
    """
    rows = weights.flatten(start_dim=1) if weights.ndim > 1 else weights.reshape(1, -1)
    for defence in defences:
        if isinstance(defence, Rounding) and (weights.ndim > 1 or defence.kind in ("fp16", "bf16")):
            rows = quantise(rows, defence.kind)
        elif isinstance(defence, Noise):
            rows = defence.added(rows, stream)
    return rows.reshape(weights.shape)
