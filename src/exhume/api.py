"""What a user of the library calls."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import observation as observations
from exhume.activations import activation as named_activation
from exhume.attacks.choice import choose_method, known_subspace, tell
from exhume.attacks.loop import Limits, Progress, run_attack
from exhume.attacks.probes.exact_matches import Recovered
from exhume.attacks.probes.ranking import Probe, Ranking, rank_records
from exhume.attacks.ranks import ALONE
from exhume.attacks.ridge_view import RIDGE_METHODS, seen_as_ridge
from exhume.attacks.room import require_room
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.layer_states import LayerStates
from exhume.metrics.errors import Evaluation, Pairs
from exhume.metrics.errors import evaluate as evaluate_rows
from exhume.observation import Knowledge, Observation
from exhume.observing.one_layer import layer_observation
from exhume.reconstruction import Reconstruction


def load_observation(path: str | Path, factory: str | None = None) -> Observation:
    """The observation of a run folder, or of an observation file.

    `factory` (package.module:factory) names code of your own that may run to build the network that was observed.
    """
    path = Path(path)
    return observations.load_observation(path / "observation.safetensors" if path.is_dir() else path, factory)


def observe_features(
    rows: Float[Tensor, "p d"],
    weights: Float[Tensor, "*k p"],
    activation: str,
    bias: Float[Tensor, " p"] | None = None,
    knowledge: Knowledge | None = None,
    trained: bool = False,
) -> Observation:
    """Weights θ of a model φ(Vx + b)·θ whose features V (and bias b) are known; one row of weights an output.

    `trained`: V is a layer that was trained too, and not fixed before.
    """
    _require_floats(rows=rows, weights=weights, bias=bias)
    features = RidgeFeatures(HeldRows(rows), named_activation(activation), bias, trained)
    return Observation(features, torch.atleast_2d(weights), knowledge or Knowledge())


def observe_layer(states: LayerStates, knowledge: Knowledge | None = None) -> Observation:
    """What an attacker sees who has one dense layer at two moments, or an average of its gradients, and nothing else.

    `exhume.changed` and `exhume.averaged` make the states. Only the silent-units attack reads such an observation.
    """
    return layer_observation(states, knowledge)


def reconstruct(
    observation: Observation,
    *,
    method: str = "auto",
    samples: int | None = None,
    seed: int = 0,
    budget_seconds: float = math.inf,
    memory_bytes: int | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Reconstruction:
    """Recovers the training inputs from the weights. Their number is found unless `samples` tells it."""
    if method == "auto" and observation.layers:
        method = "silent-units"
    if method in RIDGE_METHODS:
        observation = seen_as_ridge(observation)
    network, known = isinstance(observation.features, ModuleFeatures), known_subspace(observation)
    chosen = choose_method(method, network=network, known=known)
    limits = Limits(budget_seconds, memory_bytes)
    told = tell(observation, chosen, samples)
    require_room(told, chosen, memory_bytes, torch.float32, ALONE)
    return run_attack(told, chosen, seed=seed, limits=limits, watch=watch).reconstruction


def evaluate(found: Reconstruction, samples: Float[Tensor, "n d"], seed: int = 0) -> Evaluation:
    """A reconstruction held against the true inputs."""
    candidates = found.candidates.to(samples.dtype)
    evaluation = evaluate_rows(samples, candidates, seed=seed)
    return replace(evaluation, pairs=Pairs(samples, candidates, found.image_shape))


def rank(
    head: Observation | Float[Tensor, "k h"],
    candidates: Float[Tensor, "m columns"],
    non_members: Float[Tensor, "c others"] | None = None,
    *,
    initial: Float[Tensor, "k h"] | None = None,
    loss: str | None = None,
    recovered: Reconstruction | None = None,
) -> Ranking:
    """Which records a linear head was trained on, with p-values against records that it was not trained on.

    `head`: an observation, whose records may be inputs or embeddings, or a matrix W(T), whose records are embeddings
    (with a column of ones if the bias is its last column). `initial`: W(0) of such a matrix, zero if None. `loss`
    (square, logistic, cross-entropy): what the head was trained with; None leaves its outputs out. `recovered`: what
    `reconstruct` has brought back of the embeddings that a hidden layer was trained on; records that match one exactly
    come first, and `ranking.matches.exact` says which.
    """
    _require_floats(candidates=candidates, non_members=non_members, initial=initial)
    if isinstance(head, Observation):
        probe = Probe.of(head)
    else:
        _require_floats(head=head)
        probe = Probe(head if initial is None else head - initial, head)
    exact = None if recovered is None else Recovered.of(recovered)
    return rank_records(probe, candidates, non_members, loss, exact)


def _require_floats(**tensors: Tensor | None) -> None:
    for name, values in tensors.items():
        if values is not None and not values.is_floating_point():
            kind = str(values.dtype).removeprefix("torch.")
            raise UsageError(f"expected {name} in floating point, found {kind}; convert them, e.g. with .float()")
