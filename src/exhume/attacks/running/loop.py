"""The one loop around every method: rows, clock, trace, checkpoints, interruption, certificate."""

import hashlib
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from exhume.attacks.foundation.certificate import HELD_OUT_FRACTION
from exhume.attacks.foundation.judgement import AttackProblem, Case, Resources
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Outline
from exhume.attacks.foundation.ranks import ALONE, Ranks, RanksLost
from exhume.attacks.foundation.state import Step
from exhume.attacks.registry import known_methods
from exhume.attacks.running.budget import Clock, Closing, Limits, ready_in_time
from exhume.attacks.running.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from exhume.attacks.running.closing import closed, looked_back
from exhume.attacks.running.failed_solve import SolveFailed, sound
from exhume.attacks.running.interruption import Interruption
from exhume.attacks.running.snapshots import Snapshot, SnapshotKeeper
from exhume.errors import ExhumeError, UsageError
from exhume.features import memory
from exhume.observation import Observation
from exhume.raw_bytes import raw_bytes
from exhume.reconstruction import Reconstruction
from exhume.solving import solving

CHECKPOINT_SECONDS = 20.0


@dataclass(frozen=True, eq=False)
class Progress:
    """What an onlooker sees after each iteration. Nothing that it returns is read."""

    step: Step
    passes: float
    seconds: float
    iterations: int | None


@dataclass(frozen=True, eq=False)
class Attacked:
    """A reconstruction, the trace that led to it, and whether somebody stopped it on the way.

    `stopped`: it did not end by itself, because somebody or a limit stopped it. `snapshots`: candidates on the way,
    where a keeper was given.
    """

    reconstruction: Reconstruction
    trace: list[dict[str, float]]
    interrupted: bool
    stopped: bool = False
    snapshots: tuple[Snapshot, ...] = ()


def run_attack(
    observation: Observation,
    method: AnyMethod,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    held_out: float = HELD_OUT_FRACTION,
    dtype: torch.dtype = torch.float32,
    products: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    watch: Callable[[Progress], None] | None = None,
    checkpoint: Path | None = None,
    keeper: SnapshotKeeper | None = None,
    ranks: Ranks = ALONE,
) -> Attacked:
    """Runs a method on an observation until it converges or a limit is reached.

    `products=torch.bfloat16` lets a method take its products with V in that precision until the end phase.

    With `checkpoint`, the state is saved there every now and then, and an attack with the same settings continues from
    it, on any number of ranks. `keeper` keeps snapshots of the way, which are saved and restored with it. The file is
    the caller's to remove, once what an attack that was not `stopped` found is safe. Of several `ranks`, all of which
    call this, only the first opens it.
    """
    limits = (limits or Limits()).begun
    settings = _settings(method, observation, seed, held_out, dtype, products or dtype)
    _check_same(settings, ranks)
    timed = math.isfinite(limits.seconds)
    resources = Resources(limits.memory_bytes, dtype, products or dtype, torch.device(device), ranks, timed)
    with ready_in_time(limits, "an attack that is ready"), solving("what an attack is to solve for"):
        _check(observation, method, resources)
        case = method.open_case(observation, seed, held_out, resources)
    problem = case.problem
    saver = _Saver(checkpoint if ranks.first else None, settings, keeper)
    saved = ranks.from_first(saver.load())
    trace = saver.trace = _trace_until(saved)
    earlier_seconds = trace[-1]["seconds"] if trace else 0.0
    began, over = time.monotonic(), False
    clock = Clock(limits, ranks, earlier_seconds)
    failure: str | None = None

    def close(step: Step, stopped: bool) -> Closing:
        outputs, loss = len(observation.weights), trace[-1]["loss"]
        return closed(case, method, step, failure, stopped, outputs, loss, ranks, clock.last)

    with saver.saving_where_ranks_stop():
        with Interruption(termination=ranks.size > 1) as interruption:
            try:
                for step in clock.watched(sound(method.steps(problem, saved.state if saved else None), ranks)):
                    seconds = earlier_seconds + time.monotonic() - began
                    if not trace or step.iteration > trace[-1]["iteration"]:
                        trace.append(_trace_line(step, problem.loss.passes, seconds))
                    if keeper is not None and ranks.first:
                        keeper.note(step, problem.loss.passes)
                    if watch:
                        shown = replace(step, candidates=case.lift(step.candidates))
                        watch(Progress(shown, problem.loss.passes, seconds, method.iterations))
                    saver.step = step
                    clock.rehearse(partial(close, step, True))
                    over = ranks.any(interruption.asked or clock.over)
                    saver.save_now_and_then(at_once=over)
                    if over:
                        break
            except SolveFailed as ended:
                failure = str(ended)
            if clock.rang:
                over = True
                saver.save_now_and_then(at_once=True)
            interrupted = over and ranks.any(interruption.asked)
        assert saver.step is not None, "a method yields at least its start"
        closing = clock.closing(saver.step, partial(close, saver.step, over))
        found = _reconstruction(case, method, closing, trace[-1], settings, observation)
        moments = ranks.from_first(() if keeper is None else keeper.moments())
        device = saver.step.candidates.device
        snapshots, along = looked_back(case, moments, device, observation, ranks, clock.last)
    memory.release()
    found = replace(found, held_out=case.held_out.with_losses(along))
    return Attacked(found, trace, interrupted, over, snapshots)


def _check(observation: Observation, method: AnyMethod, resources: Resources) -> None:
    """Refuses what the method cannot be made on, or with."""
    refusal = method.refusal(Outline.of(observation))
    if refusal is not None:
        raise UsageError(refusal)
    if resources.ranks.size > 1 and not method.shares_rows:
        sharing = " or ".join(other.name for other in known_methods() if other.shares_rows)
        raise UsageError(
            f"expected one process for {method.name}, found {resources.ranks.size} ranks; start it without torchrun, "
            f"or take {sharing}, whose rows can be shared"
        )
    if resources.products != resources.dtype and not method.coarse_products:
        raise UsageError(f"expected no --products with {method.name}, found it; leave it out")


@dataclass
class _Saver:
    """Keeps the checkpoint of an attack, where there is to be one."""

    path: Path | None
    settings: dict[str, Any]
    keeper: SnapshotKeeper | None = None
    trace: list[dict[str, float]] = field(default_factory=list)
    step: Step | None = None
    last_saved: float = field(default_factory=time.monotonic)

    def load(self) -> Checkpoint | None:
        saved = None if self.path is None else load_checkpoint(self.path, self.settings)
        if saved is None:
            return None
        if self.keeper is not None:
            try:
                self.keeper.restore(saved.diary)
            except (KeyError, TypeError, ValueError, RuntimeError) as problem:
                raise ExhumeError(
                    f"expected a whole checkpoint at {self.path}, found damage at {problem}; delete it"
                ) from problem
        return replace(saved, diary={})  # nobody else's: it need not travel to other ranks

    def save_now_and_then(self, at_once: bool) -> None:
        if at_once or time.monotonic() - self.last_saved > CHECKPOINT_SECONDS:
            self._save()

    @contextmanager
    def saving_where_ranks_stop(self) -> Iterator[None]:
        try:
            yield
        except RanksLost:
            with Interruption(termination=True):  # torchrun is about to end this rank as well: not before this is done
                self._save()
            raise

    def _save(self) -> None:
        if self.path is not None and self.step is not None:
            pages = {} if self.keeper is None else self.keeper.pages()
            save_checkpoint(self.path, Checkpoint(self.settings, self.step.state, tuple(self.trace), pages))
            self.last_saved = time.monotonic()


def _check_same(settings: dict[str, Any], ranks: Ranks) -> None:
    if settings != ranks.from_first(settings):
        raise ExhumeError(
            f"expected the same observation and options on all ranks, found others on rank {ranks.rank} than on rank "
            "0; give every machine the same run folder"
        )


def _trace_until(saved: Checkpoint | None) -> list[dict[str, float]]:
    """The trace up to the iterate from which the attack goes on: what came after it is computed again."""
    if saved is None:
        return []
    return [line for line in saved.trace if line["iteration"] <= saved.state.numbers["iteration"]]


def _settings(
    method: AnyMethod, observation: Observation, seed: int, held_out: float, dtype: torch.dtype, products: torch.dtype
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
    digest.update(raw_bytes(observation.weights))
    features = observation.features
    digest.update(f"{features.p} {features.d} {observation.knowledge}".encode())
    if observation.known is not None:
        digest.update(raw_bytes(observation.known.inputs))
    for part in features.telltale(observation.weights):
        digest.update(part)
    if observation.initial_rows is not None:
        digest.update(observation.initial_rows.telltale())
    for tensor in (observation.subspace, observation.initial_bias, observation.output_bias):
        if tensor is not None:
            digest.update(raw_bytes(tensor))
    if observation.ends is not None and observation.recipe is not None:
        digest.update(observation.recipe.model_dump_json().encode())
        digest.update(raw_bytes(observation.ends.start) + raw_bytes(observation.ends.end))
    for layer in observation.layers:
        digest.update(f"{layer.name!r} {layer.source} {list(layer.target.shape)} {len(layer.ends)}".encode())
        for state in (layer.target, *layer.ends):
            digest.update(raw_bytes(state))
    return digest.hexdigest()


def _trace_line(step: Step, passes: float, seconds: float) -> dict[str, float]:
    return {
        "iteration": step.iteration,
        "loss": step.loss,
        "passes": passes,
        "seconds": round(seconds, 4),
        **step.notes,
    }


def _reconstruction(
    case: Case[AttackProblem],
    method: AnyMethod,
    closing: Closing,
    last: dict[str, float],
    settings: dict[str, Any],
    observation: Observation,
) -> Reconstruction:
    end, judgement = closing.end, closing.judgement
    candidates = case.lift(end.candidates).cpu()
    readings = [layer.reading.picture_shape for layer in observation.layers[:1] if layer.reading is not None]
    fitting = (shape for shape in (observation.image_shape, *readings) if shape is not None)
    shape = next((shape for shape in fitting if math.prod(shape) == candidates.shape[1]), None)
    failures = [failure for failure in (end.failure, judgement.facts.get("failure")) if failure is not None]
    failed = {"failure": "; ".join(failures)} if failures else {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    return Reconstruction(
        candidates=candidates,
        coefficients=judgement.coefficients.cpu(),
        method=method.name,
        certificate=judgement.certificate,
        loss=judgement.loss,
        iterations=int(last["iteration"]),
        passes=last["passes"],
        seconds=last["seconds"],
        peak_memory_mb=peak,
        seed=settings["seed"],
        settings=settings,
        given={str(kind): detail for kind, detail in case.given.items()},
        image_shape=shape,
        facts=case.facts | closing.step.facts | judgement.facts | failed,
    )
