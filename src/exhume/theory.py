"""What a model of a given size can give away, by counting: p numbers published, d numbers to each of n samples.

The weights of a random features model are p equations, θ_k = Σ_i α_i φ(v_k·x_i). Each sample hides d unknowns in them,
d − 1 for its place on the sphere and 1 for its coefficient α_i. Hence the law with two thresholds,

    p = n      the model can fit the labels,
    p = d n    the weights are as many equations as the data has unknowns,

and between the two lies a zone where the model fits its labels and the weights leave a continuum of data sets open.
As many equations as unknowns may have several solutions, and small problems do at p = d n. What is proved (Theorems 1
and 2 of arXiv 2509.22214) is about the span of the features, which is more than θ, p well above d n, and activations
unlike ReLU; that no sample is missing is proved for n = 2.

With k outputs the last layer has k coefficients to a sample and the unknowns are d − 1 + k; if norms are free and φ is
not homogeneous they are d + k.

The law counts, it does not promise: `explain` says in words what follows from a count and what does not.
"""

from dataclasses import dataclass
from typing import Literal

from exhume.errors import UsageError

Zone = Literal["underfit", "labels", "data", "unknown"]

ZONE_TITLES: dict[Zone, str] = {
    "underfit": "below label fitting",
    "labels": "fits labels, data not determined",
    "data": "enough equations for the data",
    "unknown": "number of samples unknown",
}


@dataclass(frozen=True)
class Gauge:
    """Where a model stands with regard to the two thresholds."""

    p: int
    """Parameters of the last layer."""
    d: int
    """Numbers to a sample."""
    n: int | None
    """Training samples, None if nobody knows."""
    labels_ratio: float | None
    """p / n; from 1 on the model can fit its labels."""
    ratio: float | None
    """p / (d n): equations for each unknown number in the data."""
    capacity: float
    """p / d: how many samples of dimension d have no more unknowns than there are weights."""
    zone: Zone


def label_threshold(n: int) -> int:
    """Parameters from which on a model can fit n labels: n."""
    _check("n", n)
    return n


def data_threshold(d: int, n: int) -> int:
    """Parameters from which on there are as many equations as n samples of dimension d have unknowns: d n.

    >>> data_threshold(d=3072, n=100)
    307200
    """
    _check("d", d)
    _check("n", n)
    return d * n


def gauge(p: int, d: int, n: int | None = None) -> Gauge:
    """Hold p parameters against n samples of dimension d.

    >>> gauge(p=6000, d=100, n=20).zone
    'data'
    >>> gauge(p=6000, d=100).capacity
    60.0
    """
    _check("p", p)
    _check("d", d)
    if n is None:
        return Gauge(p, d, None, None, None, p / d, "unknown")
    _check("n", n)
    zone: Zone
    if p < label_threshold(n):
        zone = "underfit"
    elif p < data_threshold(d, n):
        zone = "labels"
    else:
        zone = "data"
    return Gauge(p, d, n, p / n, p / data_threshold(d, n), p / d, zone)


LAST_LAYER = "A last layer"


def explain(gauge: Gauge, whose: str = LAST_LAYER, parameters: int | None = None) -> list[str]:
    """The gauge in plain sentences: the count, what follows from it, and what does not. `whose` parameters p counts.

    `parameters`: how many there are, where some repeat others and p counts the equations that are left.
    """
    return [*_count(gauge, whose, parameters), *_what_follows(gauge), *_what_does_not_follow(gauge, whose)]


def _count(gauge: Gauge, whose: str, parameters: int | None) -> list[str]:
    repeats = parameters is not None and parameters != gauge.p
    size = f"p = {gauge.p:,} parameters can hold"
    if repeats:
        size = f"{parameters:,} parameters gives p = {gauge.p:,} independent equations, which can hold"
    sentences = [
        f"{whose} of {size} at most p / d = {_number(gauge.capacity)} samples of dimension d = {gauge.d:,} in full."
    ]
    if gauge.n is not None and gauge.labels_ratio is not None and gauge.ratio is not None:
        sentences.append(
            f"With n = {gauge.n:,} training samples that is p / n = {_number(gauge.labels_ratio)} "
            f"{'equations' if repeats else 'parameters'} per label and p / (d n) = "
            f"{_number(gauge.ratio)} per number in the data."
        )
    return sentences


def _what_follows(gauge: Gauge) -> list[str]:
    if gauge.n is None:
        return [
            f"The number of samples is unknown. A training set of up to {gauge.p // gauge.d:,} samples has no more "
            "unknowns than there are weights. A larger one has more, and is not determined."
        ]
    both = f"{label_threshold(gauge.n):,} and {data_threshold(gauge.d, gauge.n):,}"
    return {
        "underfit": [
            f"p is below both thresholds (n and d n, {both}). The model cannot fit all labels of generic data, and the "
            "weights hold less than one number per sample."
        ],
        "labels": [
            f"p lies between the thresholds (n and d n, {both}). The model can fit its labels. Other data sets give "
            "the same weights, so arbitrary data are not determined."
        ],
        "data": [
            f"p reaches both thresholds (n and d n, {both}). There are at least as many equations as unknowns, so the "
            "weights can give the data away, up to signs and norms where the activation hides them."
        ],
    }[gauge.zone]


def _what_does_not_follow(gauge: Gauge, whose: str) -> list[str]:
    reachable = [
        "Reaching d n does not mean that an attack will converge. The search is hard close to the threshold. Attacks "
        "succeed from about 2 d n on.",
        "Nor does it mean that only the data explain the weights. That is proved for p well above d n, for the span of "
        "the features, and not for ReLU. Small problems have other exact solutions at d n.",
    ]
    not_safe = (
        "Staying below d n does not mean safe. Images are not arbitrary. A prior or a known subspace may leave r < d "
        "numbers per sample. Then about r n parameters are enough."
    )
    counted = (
        "The count is about the parameters of the last layer over known features. Other layers can give away more."
    )
    if whose != LAST_LAYER:
        counted = "The count takes these parameters together. An attack on one layer has those of that layer alone."
    scope = f"{counted} With k outputs the unknowns are d - 1 + k per sample instead of d."
    return {
        "underfit": [not_safe, scope],
        "labels": [not_safe, scope],
        "data": [*reachable, scope],
        "unknown": [not_safe, *reachable, scope],
    }[gauge.zone]


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def _check(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"expected {name} to be a whole number of at least 1, found {value}")
