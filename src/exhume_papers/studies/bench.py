"""Side by side with the published attack, on the same observation.

Each attack runs in a process of its own, so that its peak memory is its own, and is watched from outside: the error
against the truth is taken in a callback whose time is not counted and whose result nobody reads.
"""

import math
import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any

import torch

from exhume import seeds
from exhume.attacks.running.budget import Limits
from exhume.attacks.running.loop import Progress
from exhume.attacks.running.prepare import prepare, run
from exhume.attacks.running.settings import AttackSettings
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.metrics.errors import reconstruction_error, signed_error
from exhume.metrics.matching import match
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

TARGET = 0.05
METHODS = ("split-newton", "heavy-ball")


@dataclass(frozen=True)
class BenchCase:
    """A victim to be made again by each process from its numbers alone."""

    dim: int = 100
    samples: int = 20
    ratio: float = 10.0
    activation: str = "relu"
    seed: int = 0
    data: str = "sphere"
    data_dir: str | None = None

    def title(self) -> str:
        return f"{self.data} d={self.dim} n={self.samples} p={self.ratio:g}dn {self.activation} seed {self.seed}"


@dataclass(frozen=True)
class Timing:
    """One attack on one case. `seconds_to_target` and `passes_to_target` are None where rho never came to 0.05."""

    method: str
    seconds_to_target: float | None
    passes_to_target: float | None
    seconds: float
    passes: float
    iterations: int
    error: float
    signed_error: float
    samples_found: int
    outcome: str
    held_out_loss: float | None
    peak_memory_mb: float
    curve: tuple[tuple[float, float, float], ...] = field(repr=False)  # passes, seconds, error
    distances: tuple[float, ...] = field(repr=False)
    coefficients: tuple[float, ...] = field(repr=False)


def time_attack(case: BenchCase, method: str, seconds: float = math.inf, iterations: int | None = None) -> Timing:
    """Runs one attack on one case in this process."""
    name = {"dim": case.dim} if case.data == "sphere" else {"data_dir": case.data_dir}
    data = load(DataConfig.parse(name=case.data, samples=case.samples, seed=seeds.derive(case.seed, "data"), **name))
    n, d = data.inputs.shape
    config = RandomFeaturesConfig(params=round(case.ratio * n * d), activation=case.activation, seed=case.seed)
    victim = train_random_features(config, data, draw_rows(config, d))
    options = {} if iterations is None else {"iterations": iterations}
    settings = AttackSettings(method, options, seed=case.seed, limits=Limits(seconds))
    curve: list[tuple[float, float, float]] = []
    spent, every = 0.0, 1 if method == "split-newton" else 50

    def watch(progress: Progress) -> None:
        nonlocal spent
        if progress.step.iteration % every:
            return
        began = time.monotonic()
        error = reconstruction_error(data.inputs, progress.step.candidates)
        curve.append((progress.passes, progress.seconds - spent, error))
        spent += time.monotonic() - began

    found = run(prepare(victim.observation, settings), watch).reconstruction
    reached = next(((passes, after) for passes, after, error in curve if error <= TARGET), (None, None))
    return Timing(
        method=method,
        seconds_to_target=reached[1],
        passes_to_target=reached[0],
        seconds=found.seconds - spent,
        passes=found.passes,
        iterations=found.iterations,
        error=reconstruction_error(data.inputs, found.candidates),
        signed_error=signed_error(data.inputs, found.candidates),
        samples_found=len(found.candidates),
        outcome=found.outcome.value,
        held_out_loss=found.held_out_loss,
        peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        curve=tuple(curve),
        distances=tuple(match(data.inputs, found.candidates, sign_free=True).distance.tolist()),
        coefficients=tuple(victim.coefficients.abs().tolist()),
    )


def run_alone(case: BenchCase, method: str, seconds: float = math.inf, iterations: int | None = None) -> Timing:
    """The same in a fresh process, whose peak memory is that of this attack."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(time_attack, case, method, seconds, iterations).result()


def compare(
    case: BenchCase, published_seconds: float, say: Callable[[str], None], iterations: int | None = None
) -> dict[str, Timing]:
    """Both attacks on one case: exhume's first, then the published one at its own settings."""
    timings = {}
    for method in METHODS:
        say(f"{case.title()}: {method} ...")
        limit = published_seconds if method == "heavy-ball" else math.inf
        timings[method] = run_alone(case, method, limit, iterations if method == "heavy-ball" else None)
    return timings


def speedup(timings: dict[str, Timing]) -> dict[str, Any]:
    """Published seconds over ours to rho <= 0.05; where the published attack does not get there, its time counts."""
    ours, published = timings["split-newton"], timings["heavy-ball"]
    if ours.seconds_to_target is None:
        return {"speedup": None, "speedup_is_lower_bound": False}
    theirs = published.seconds if published.seconds_to_target is None else published.seconds_to_target
    return {
        "speedup": theirs / max(ours.seconds_to_target, 1e-3),
        "speedup_is_lower_bound": published.seconds_to_target is None,
    }


@dataclass(frozen=True)
class Trial:
    """One attack of a success curve."""

    ratio: float
    seed: int
    timing: Timing


def success_curve(
    base: BenchCase, ratios: tuple[float, ...], trials: int, method: str, seconds: float, iterations: int | None = None
) -> Iterator[Trial]:
    """Trials of one method, a process and a thread for each core: small cases gain nothing from more threads."""
    cases = [BenchCase(**{**asdict(base), "ratio": ratio, "seed": seed}) for ratio in ratios for seed in range(trials)]
    workers = min(len(cases), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        waiting = [pool.submit(time_attack, case, method, seconds, iterations) for case in cases]
        for case, timing in zip(cases, waiting, strict=True):
            yield Trial(case.ratio, case.seed, timing.result())
