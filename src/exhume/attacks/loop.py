"""The one loop around every method: rows, clock, trace, checkpoints, interruption, certificate."""

import hashlib
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.cases import Case, Means, open_case
from exhume.attacks.certificate import HELD_OUT_FRACTION
from exhume.attacks.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from exhume.attacks.interruption import Interruption
from exhume.attacks.problem import Method, Step
from exhume.errors import ExhumeError, UsageError
from exhume.features import memory
from exhume.features.ridge import RidgeFeatures
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction

CHECKPOINT_SECONDS = 20.0
TRACE_COLUMNS = ("iteration", "loss", "passes", "seconds")


@dataclass(frozen=True)
class Limits:
    """What an attack may use. `seconds` is wall time; `memory_bytes` decides whether V is held or streamed."""

    seconds: float = math.inf
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise UsageError(f"expected a positive time budget, found {self.seconds} s")
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise UsageError(f"expected a positive memory budget, found {self.memory_bytes} bytes")


@dataclass(frozen=True, eq=False)
class Progress:
    """What an onlooker sees after each iteration. Nothing that it returns is read."""

    step: Step
    passes: float
    seconds: float
    iterations: int


@dataclass(frozen=True, eq=False)
class Attacked:
    """A reconstruction, the trace that led to it, and whether somebody stopped it on the way."""

    reconstruction: Reconstruction
    trace: list[dict[str, float]]
    interrupted: bool


def run_attack(
    observation: Observation,
    method: Method,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    held_out: float = HELD_OUT_FRACTION,
    dtype: torch.dtype = torch.float32,
    products: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    watch: Callable[[Progress], None] | None = None,
    checkpoint: Path | None = None,
) -> Attacked:
    """Runs a method on an observation until it converges or a limit is reached.

    `products=torch.bfloat16` lets a method take its products with V in that precision until the end phase.

    With `checkpoint`, the state is saved there every now and then, and an attack with the same settings continues from
    it; the file is removed when the attack has ended by itself.
    """
    limits = limits or Limits()
    means = Means(limits.memory_bytes, dtype, products or dtype, torch.device(device))
    case = open_case(observation, method, seed, held_out, means)
    problem = case.problem
    settings = _settings(method, observation, seed, held_out, dtype, products or dtype)
    saved = load_checkpoint(checkpoint, settings) if checkpoint else None
    trace = _trace_until(saved)
    earlier_seconds = trace[-1]["seconds"] if trace else 0.0
    began = last_saved = time.monotonic()
    step, over = None, False
    with Interruption() as interruption:
        for step in method.steps(problem, saved.state if saved else None):
            seconds = earlier_seconds + time.monotonic() - began
            if not math.isfinite(step.loss):
                raise ExhumeError(f"expected a finite loss, found {step.loss} at iteration {step.iteration}")
            if not trace or step.iteration > trace[-1]["iteration"]:
                trace.append(_trace_line(step, problem.loss.passes, seconds))
            if watch:
                watch(Progress(step, problem.loss.passes, seconds, method.iterations))
            over = interruption.asked or seconds >= limits.seconds
            if checkpoint and (over or time.monotonic() - last_saved > CHECKPOINT_SECONDS):
                save_checkpoint(checkpoint, Checkpoint(settings, step.state, tuple(trace)))
                last_saved = time.monotonic()
            if over:
                break
        interrupted = over and interruption.asked
    assert step is not None, "a method yields at least its start"
    candidates = method.finish(problem, step.candidates) if over else step.candidates
    found = _reconstruction(case, method, candidates, trace[-1], settings)
    memory.release()
    if checkpoint and not over:
        checkpoint.unlink(missing_ok=True)
    return Attacked(found, trace, interrupted)


def _trace_until(saved: Checkpoint | None) -> list[dict[str, float]]:
    """The trace up to the iterate from which the attack goes on: what came after it is computed again."""
    if saved is None:
        return []
    return [line for line in saved.trace if line["iteration"] <= saved.state.numbers["iteration"]]


def _settings(
    method: Method, observation: Observation, seed: int, held_out: float, dtype: torch.dtype, products: torch.dtype
) -> dict[str, Any]:
    assert is_dataclass(method)
    assert not isinstance(method, type)
    return {
        "method": method.name,
        **asdict(method),
        "samples": observation.knowledge.samples,
        "seed": seed,
        "held_out": held_out,
        "dtype": str(dtype).removeprefix("torch."),
        "products": str(products).removeprefix("torch."),
        "observation": _fingerprint(observation),
    }


def _fingerprint(observation: Observation) -> str:
    """Tells one observation from another: a checkpoint belongs to the one it was made from."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(_bytes(observation.weights))
    features = observation.features
    digest.update(f"{features.p} {features.d} {observation.knowledge}".encode())
    if isinstance(features, RidgeFeatures):
        digest.update(features.activation.name.encode())
        digest.update(_bytes(features.rows.block(0, min(features.p, 64))))
        if features.bias is not None:
            digest.update(_bytes(features.bias))
    else:  # a network is told by what it makes of one input
        probe = torch.randn(1, features.d, generator=torch.Generator().manual_seed(0)).to(observation.weights)
        digest.update(_bytes(features(probe)))
    return digest.hexdigest()


def _bytes(values: Tensor) -> bytes:
    return values.cpu().contiguous().numpy().tobytes()


def _trace_line(step: Step, passes: float, seconds: float) -> dict[str, float]:
    return {
        "iteration": step.iteration,
        "loss": step.loss,
        "passes": passes,
        "seconds": round(seconds, 4),
        **step.notes,
    }


def _reconstruction(
    case: Case,
    method: Method,
    candidates: Float[Tensor, "m d"],
    last: dict[str, float],
    settings: dict[str, Any],
) -> Reconstruction:
    judged = case.judge(candidates)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    return Reconstruction(
        candidates=candidates.cpu(),
        coefficients=judged.coefficients.cpu(),
        method=method.name,
        certificate=judged.certificate,
        loss=judged.loss,
        iterations=int(last["iteration"]),
        passes=last["passes"],
        seconds=last["seconds"],
        peak_memory_mb=peak,
        seed=settings["seed"],
        settings=settings,
    )
