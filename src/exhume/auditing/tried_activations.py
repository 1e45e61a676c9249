"""How well an activation that a file does not tell fits the training records, against every other one.

Training adds combinations of the records' features to the head. So with the right activation little of its change lies
outside of their span: that share is what is compared. The loss does not tell activations apart, because a network that
answers with larger numbers has a smaller one.

The records only say which activation fits. They do not choose one: the attack does not see them, and neither does the
reading of the file that it attacks.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import ACTIVATIONS
from exhume.activations import activation as named_activation
from exhume.experiments.truth import Truth
from exhume.report.numbers import percent

CLEARLY = 1.5
"""The assumed activation is doubted where its share is larger than that of the best by this factor."""
AS_WELL = 1.02
MOST_RECORDS = 0.5
"""Of the number of features: more records span too much of them."""
Tensors = Mapping[str, Tensor]


def tried_out(
    order: Sequence[str], tensors: Tensors, start: Tensors | None, activation: str, truth: Truth | None, known: bool
) -> tuple[str, ...]:
    """What to say of it; `known`: whether the file says its activation, so that others need not be tried."""
    first = tensors[f"{order[0]}.weight"]
    if truth is None or truth.inputs.shape[1] != first.shape[1]:
        return ()
    said = [] if known else list(_fitting(order, tensors, start, activation, truth.inputs))
    classes = tensors[f"{order[-1]}.weight"].shape[0]
    if bool((truth.class_index < 0).any()) or not 1 < classes > int(truth.class_index.max()):
        return tuple(said)
    right = (_values(order, tensors, activation, truth.inputs, whole=True).argmax(dim=1) == truth.class_index).double()
    share = f"Tried on the records: with {activation} the network gives {float(right.mean()):.0%} of them their own "
    share += "class."
    if right.mean() < 0.5:
        share += " If that is too few: is the activation, the scaling or the order of the classes another?"
    if not known and not said:
        share += " That does not tell activations apart; the weights before training (--initial) would."
    return (share, *said)


def _fitting(
    order: Sequence[str], tensors: Tensors, start: Tensors | None, activation: str, inputs: Float[Tensor, "n d"]
) -> tuple[str, ...]:
    head = f"{order[-1]}.weight"
    if start is None or head not in start or len(inputs) > MOST_RECORDS * tensors[head].shape[1]:
        return ()
    change = (tensors[head] - start[head]).double()
    whole = all(name in start for name in tensors)
    if not bool(change.any()):
        return ()
    shares = {}
    for name in dict.fromkeys((activation, *ACTIVATIONS.names())):
        features = _values(order, tensors, name, inputs)
        if whole:  # halfway between both ends of training is closer to what the head grew on
            features = (features + _values(order, start, name, inputs)) / 2
        shares[name] = _outside(change, features)
    own, best = shares[activation], min(shares, key=lambda name: shares[name])
    where = "of the change of the head lies outside of the span of the records' features"
    if own > CLEARLY * shares[best]:
        also = [name for name in shares if name != best and shares[name] <= AS_WELL * shares[best]]
        return (
            f"The activation is probably not {activation}: with it {_energy(own)} {where}, with {best} "
            f"{_energy(shares[best])}"
            f"{_as_well(also)}. The records do not choose how the file is read: give --activation {best}.",
        )
    also = [name for name in shares if name != activation and AS_WELL * own >= shares[name]]
    rest = [name for name in shares if name not in (activation, *also)]
    after = min(rest, key=lambda name: shares[name], default=None)
    other = "" if after is None else f" The next one, {after}, leaves {_energy(shares[after])}."
    return (
        f"Tried on the records against every other activation: with {activation} {_energy(own)} {where}"
        f"{_as_well(also)}.{other}",
    )


def _energy(share: float) -> str:
    """As the page counts what lies outside of a span everywhere: by squares (`metrics/floor.py`)."""
    return percent(share**2)


def _as_well(names: Sequence[str]) -> str:
    return f" ({' and '.join(names)} fit{'s' if len(names) == 1 else ''} as well)" if names else ""


def _values(
    order: Sequence[str], tensors: Tensors, activation: str, inputs: Float[Tensor, "n d"], whole: bool = False
) -> Float[Tensor, "n p"]:
    """What the head reads, or with `whole` what it answers."""
    phi, values = named_activation(activation).value, inputs.double()
    with torch.no_grad():
        for number, name in enumerate(order if whole else order[:-1]):
            bias = tensors.get(f"{name}.bias")
            values = torch.nn.functional.linear(
                phi(values) if number else values,
                tensors[f"{name}.weight"].double(),
                None if bias is None else bias.double(),
            )
        return values if whole else phi(values)


def _outside(change: Float[Tensor, "k p"], features: Float[Tensor, "n p"]) -> float:
    """The share of the change, by its norm, that no combination of the features gives."""
    if not bool(features.isfinite().all()):
        return 1.0
    inside = torch.linalg.qr(features.T).Q
    return float((change - change @ inside @ inside.T).norm() / change.norm())
