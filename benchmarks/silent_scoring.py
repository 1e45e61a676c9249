"""Attacks one state of a layer and holds what came back against the truth: used by all `silent_*.py`.

Errors are over each sample's own norm, after one-to-one matching. A call is what the attack says is recovered.

    within    samples with a candidate closer than a tenth of their norm
    missed    those of them that no call is close to
    wrong     calls farther than a tenth of a sample's norm from every sample
    blurred   calls farther than a tenth of a sample's distance from the mean of all samples from every sample. Stricter
              than `wrong`: where samples are alike, a blend of two is close to both by their norm
    repeated  right calls beyond one per sample
"""

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

import exhume
from exhume.layer_states import LayerStates
from exhume.metrics.errors import relative_errors
from exhume.reconstruction import Reconstruction

CLOSE = 0.1
SURE = 0.5  # confidence from which a candidate is called recovered


@dataclass(frozen=True)
class Score:
    samples: int
    rank: int | None
    within: int
    called: int
    missed: int
    wrong: int
    blurred: int
    repeated: int
    median: float
    worst: float
    outcome: str
    seconds: float

    def numbers(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Attacked:
    found: Reconstruction
    score: Score


def attack(
    states: LayerStates, samples: Tensor, *, seed: int, budget_seconds: float, also: Tensor | None = None
) -> Attacked:
    """n is not told. `also`: inputs that training saw besides the samples, such as crops: calls near them are right.

    Raises ExhumeError where the attack refuses the layer."""
    began = time.monotonic()
    found = exhume.reconstruct(exhume.observe_layer(states), seed=seed, budget_seconds=budget_seconds)
    return Attacked(found, score(found, samples, time.monotonic() - began, also))


def score(found: Reconstruction, samples: Tensor, seconds: float, also: Tensor | None = None) -> Score:
    truth, candidates = samples.double(), found.inputs.double()
    called = candidates[called_of(found)]
    errors, errors_called = _errors(truth, candidates), _errors(truth, called)
    near, near_called = errors < CLOSE, errors_called < CLOSE
    every = truth if also is None else torch.cat([truth, also.double()])
    wrong = _far(called, every, every.norm(dim=1))
    blurred = _far(called, every, (every - truth.mean(dim=0)).norm(dim=1))
    rank = found.facts["rank"]
    return Score(
        samples=len(truth),
        rank=None if rank is None else int(rank),
        within=int(near.sum()),
        called=len(called),
        missed=int((near & ~near_called).sum()),
        wrong=int(wrong.sum()),
        blurred=int(blurred.sum()),
        repeated=0 if also is not None else max(0, len(called) - int(wrong.sum()) - int(near_called.sum())),
        median=float(errors.median()),
        worst=float(errors.max()),
        outcome=found.outcome.value,
        seconds=round(seconds, 2),
    )


def called_of(found: Reconstruction) -> Tensor:
    """Which candidates are called recovered."""
    return torch.tensor([value >= SURE for value in found.certificate.confidence], dtype=torch.bool)


def distances(candidates: Tensor, samples: Tensor) -> Tensor:
    """Over each sample's norm, without the rounding of a product: exact where a candidate is a sample."""
    norms = samples.norm(dim=1).clamp_min(torch.finfo(samples.dtype).tiny)
    return torch.cdist(candidates, samples, compute_mode="donot_use_mm_for_euclid_dist") / norms


def _errors(samples: Tensor, candidates: Tensor) -> Tensor:
    if not len(candidates):
        return torch.ones(len(samples), dtype=samples.dtype)
    return relative_errors(samples, candidates)


def _far(candidates: Tensor, samples: Tensor, sizes: Tensor) -> Tensor:
    """Which candidates are farther than a tenth of its size from every sample."""
    if not len(candidates):
        return torch.zeros(0, dtype=torch.bool)
    apart = torch.cdist(candidates, samples, compute_mode="donot_use_mm_for_euclid_dist")
    return (apart > CLOSE * sizes).all(dim=1)
