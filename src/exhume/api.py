"""What a user of the library calls."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import observation as observations
from exhume.attacks.choice import RIDGE_METHODS, choose_method, known_subspace, tell
from exhume.attacks.loop import Limits, Progress, run_attack
from exhume.attacks.probes.exact_matches import Recovered
from exhume.attacks.probes.ranking import Probe, Ranking, rank_records
from exhume.attacks.ranks import ALONE
from exhume.attacks.room import require_room
from exhume.features.module import ModuleFeatures
from exhume.metrics.errors import Evaluation, Pairs
from exhume.metrics.errors import evaluate as evaluate_rows
from exhume.observation import Observation
from exhume.observing.of_features import require_floats
from exhume.observing.ridge_view import seen_as_ridge
from exhume.reconstruction import Reconstruction


def load_observation(path: str | Path, factory: str | None = None) -> Observation:
    """The observation of a run folder, or of an observation file.

    `factory` (package.module:factory) names code of your own that may run to build the network that was observed.
    """
    path = Path(path)
    return observations.load_observation(path / "observation.safetensors" if path.is_dir() else path, factory)


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
    require_floats(candidates=candidates, non_members=non_members, initial=initial)
    if isinstance(head, Observation):
        probe = Probe.of(head)
    else:
        require_floats(head=head)
        probe = Probe(head if initial is None else head - initial, head)
    exact = None if recovered is None else Recovered.of(recovered)
    return rank_records(probe, candidates, non_members, loss, exact)
