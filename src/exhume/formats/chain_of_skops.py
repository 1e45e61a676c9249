"""The layers of scikit-learn's MLPClassifier and MLPRegressor, and what their optimiser keeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import ExhumeError, UsageError
from exhume.formats.contents import Contents, StoredArray, StoredObject
from exhume.formats.dense_chain import WAY_OUT, DenseChain, DenseLayer
from exhume.formats.linear_head import Scaler, steps_before

NETWORKS = ("MLPClassifier", "MLPRegressor")
ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "logistic": "sigmoid", "identity": "linear"}
BUFFERS = {"AdamOptimizer": ("ms", "exp_avg"), "SGDOptimizer": ("velocities", "momentum_buffer")}
"""scikit-learn's velocities are torch's momentum buffer times minus the learning rate: the same span."""


def chain_of_skops(contents: Contents, path: Path) -> DenseChain:
    found = list(contents.objects_of(*NETWORKS))
    if len(found) != 1:
        raise UsageError(
            f"expected one {' or '.join(NETWORKS)} in {path}, found {len(found)}; "
            "for a linear model see exhume rank, for one that stores records exhume scan"
        )
    network = found[0]
    weights, biases = (_arrays(network, name, path) for name in ("coefs_", "intercepts_"))
    if len(weights) != len(biases):
        raise ExhumeError(f"expected a bias for each of {len(weights)} layers in {path}, found {len(biases)}")
    stated = str(network.members.get("activation"))
    if stated not in ACTIVATIONS:
        raise ExhumeError(f"expected an activation out of {', '.join(ACTIVATIONS)} in {path}, found {stated[:40]!r}")
    layers = tuple(
        DenseLayer(f"dense{number + 1}", weight.T, bias)
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True))
    )
    try:
        prepare = steps_before(network, contents, path)
    except UsageError:  # another step than a scaler
        note = "The file has other steps in front of the network: records are compared as they are after those."
        return DenseChain(layers, ACTIVATIONS[stated], (note,), _kept(network, len(weights)))
    scaler = None if prepare is None else Scaler.of(prepare, weights[0].shape[0], path)
    return DenseChain(layers, ACTIVATIONS[stated], (), _kept(network, len(weights)), scaler)


def _kept(network: StoredObject, layers: int) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """The optimiser's averages of gradients: first those of all weights, then those of all biases."""
    optimiser = network.members.get("_optimizer")
    if not isinstance(optimiser, StoredObject) or optimiser.class_name not in BUFFERS:
        return {}
    member, name = BUFFERS[optimiser.class_name]
    values = optimiser.members.get(member)
    if not isinstance(values, list) or len(values) != 2 * layers or not all(isinstance(v, StoredArray) for v in values):
        return {}
    return {name: [(values[at].read().T, values[layers + at].read()) for at in range(layers)]}


def _arrays(network: StoredObject, name: str, path: Path) -> list[np.ndarray]:
    values: Any = network.members.get(name)
    if not isinstance(values, Sequence) or not all(isinstance(value, StoredArray) for value in values):
        raise ExhumeError(f"expected the arrays {name} of a fitted network in {path}, found none; {WAY_OUT}")
    return [np.asarray(value.read()) for value in values]
