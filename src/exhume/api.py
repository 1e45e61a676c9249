"""What a user of the library calls."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from exhume import observation as observations
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Source
from exhume.attacks.probes.exact_matches import Recovered
from exhume.attacks.probes.ranking import Probe, Ranking, rank_records
from exhume.attacks.running.budget import Limits
from exhume.attacks.running.loop import Progress
from exhume.attacks.running.pooling import run_pool
from exhume.attacks.running.prepare import prepare, run
from exhume.errors import UsageError
from exhume.experiments.attack_request import AttackRequest
from exhume.metrics.errors import Evaluation, Pairs
from exhume.metrics.errors import evaluate as evaluate_rows
from exhume.observation import Observation
from exhume.observing.of_features import require_floats
from exhume.reconstruction import Reconstruction
from exhume.scanning.scan import Scan
from exhume.scanning.scan import scan as scan_files
from exhume.scanning.writing import write_rows, write_sarif
from exhume.torch_values import parse_device, parse_dtype
from exhume.units import bytes_of, seconds_of


def load_observation(path: str | Path, factory: str | None = None) -> Observation:
    """The observation of a run folder, or of an observation file.

    `factory` (package.module:factory) names code of your own that may run to build the network that was observed.
    """
    path = Path(path)
    return observations.load_observation(path / "observation.safetensors" if path.is_dir() else path, factory)


def reconstruct(
    observation: Observation,
    *,
    method: str | AnyMethod = "auto",
    samples: int | None = None,
    seed: int = 0,
    budget: str | float | None = None,
    memory: str | int | None = None,
    watch: Callable[[Progress], None] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str = torch.float32,
    prior: Literal["none", "image"] = "none",
    subspace: Source | Float[Tensor, "d r"] | None = None,
    budget_seconds: float = math.inf,
    memory_bytes: int | None = None,
    **options: Any,
) -> Reconstruction:
    """Recovers the training inputs from the weights, as `exhume attack` does. Their number is found unless `samples`
    tells it.

    `method` is a name, or a method with hyperparameters of its own: `exhume.SplitNewton(iterations=100)`. `budget` is
    in seconds or like "10m", `memory` in bytes or like "8G"; `budget_seconds` and `memory_bytes` are the same as
    numbers. `subspace`: where that of the data comes from, or columns that span it. `prior="image"`: images at the
    resolution that the weights allow, where they are too few for whole ones. `watch` is called after each iteration.
    `options` are all others of `exhume attack`, by their names: `held_out`, `pool`, `start_seeds`, `spectrum`, ..., and
    hyperparameters of a method that is named.
    """
    source: Source | None
    if isinstance(subspace, Tensor):
        observation, source = replace(observation, subspace=subspace), "given"
    else:
        source = subspace
    named = {"method": method} if isinstance(method, str) else {}
    asked = AttackRequest.from_config({**named, "prior": prior, **options})
    if asked.known is not None:
        raise UsageError("expected known samples as part of the observation (Observation.known), found a file of them")
    settings = replace(
        asked.settings(seed, image_shape=observation.image_shape),
        method=method,
        subspace=source,
        samples=samples,
        limits=Limits(seconds_of(budget, budget_seconds), bytes_of(memory, memory_bytes)),
        dtype=parse_dtype(str(dtype).removeprefix("torch.")),
        device=parse_device(str(device)),
    )
    prepared = prepare(observation, settings)
    attacked = run_pool(prepared) if settings.pool > 1 else run(prepared, watch)
    return attacked.reconstruction


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
    labels: Shaped[Tensor, " m"] | None = None,
    non_member_labels: Shaped[Tensor, " c"] | None = None,
    bias: bool = False,
) -> Ranking:
    """Which records a linear head was trained on, with p-values against records that it was not trained on.

    `head`: an observation, whose records may be inputs or embeddings, or a matrix W(T), whose records are embeddings
    (with a column of ones if the bias is its last column; `bias` says that it is, and adds the ones where they are
    missing). `initial`: W(0) of such a matrix, zero if None. `loss` (square, signed-square, logistic, cross-entropy,
    squared-hinge): what the head was trained with; None leaves its outputs out. `labels` and
    `non_member_labels`: classes from 0 on, or numbers; with them heads that came to rest give their records away
    (`attacks/probes/stationary.py`). `recovered`: what
    `reconstruct` has brought back of the embeddings that a hidden layer was trained on; records that match one exactly
    come first, and `ranking.matches.exact` says which.
    """
    require_floats(candidates=candidates, non_members=non_members, initial=initial)
    if isinstance(head, Observation):
        probe = Probe.of(head)
    else:
        require_floats(head=head)
        probe = Probe(head if initial is None else head - initial, head, constant=bias)
    exact = None if recovered is None else Recovered.of(recovered)
    return rank_records(probe, candidates, non_members, loss, exact, labels, non_member_labels)


def scan(path: str | Path, *, rows: str | Path | None = None, sarif: str | Path | None = None) -> Scan:
    """What in a file or folder is training data, or leads to it, without any attack: nothing in it is run.

    `rows`: a CSV file to write every stored record to. `sarif`: one for the findings as SARIF 2.1.0.
    """
    done = scan_files(Path(path))
    if rows is not None:
        write_rows(done.findings, Path(rows))
    if sarif is not None:
        write_sarif(done, Path(sarif))
    return done
