"""A solve that fails in the midst of an attack: what was found before it is still worth a verdict.

A failure is a loss or a candidate that is not finite, or a factorisation that torch gives up on. Nothing that is not
finite gets past here, and nothing that is finite is changed here.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.certificate import unjudged
from exhume.attacks.foundation.judgement import AttackProblem, Case, Judgement
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.ranks import Ranks, RanksLost
from exhume.attacks.foundation.state import Step
from exhume.errors import ExhumeError
from exhume.solving import SOLVE_ERRORS, in_one_line

WAY_OUT = "try --dtype float64, and look at the scale of the features"


class SolveFailed(Exception):
    """The attack ends here, with what it has. Its text is the `failure` of the summary."""


def sound(steps: Iterator[Step], ranks: Ranks) -> Iterator[Step]:
    """The steps, until one is not finite or cannot be made: SolveFailed then, or ExhumeError where it is the first."""
    last: Step | None = None
    try:
        for step in steps:
            if not math.isfinite(step.loss):
                raise _ended(f"the loss was {step.loss}", f"a finite loss, found {step.loss}", step, last)
            if not _finite(step.candidates):
                raise _ended("a candidate was not finite", "finite candidates, found others", step, last)
            last = step
            yield step
    except SOLVE_ERRORS as problem:
        why = _in_words(problem, ranks)
        if last is None:
            raise ExhumeError(f"expected a start that can be solved for, found: {why}; {WAY_OUT}") from problem
        raise SolveFailed(
            f"a solve failed after iteration {last.iteration} ({why}); the candidates are those of that iteration"
        ) from problem


@dataclass(frozen=True, eq=False, repr=False)
class Finished:
    candidates: Float[Tensor, "m c"]
    failure: str | None = None


def finished(method: AnyMethod, problem: object, candidates: Float[Tensor, "m c"], ranks: Ranks) -> Finished:
    """The candidates of an attack that was stopped, made fit to be shown; where that fails, as they were, and why."""
    try:
        shown = method.finish(problem, candidates)
        if _finite(shown):
            return Finished(shown)
        why = "numbers that are not finite"
    except SOLVE_ERRORS as failure:
        why = _in_words(failure, ranks)
    return Finished(candidates, f"finishing failed ({why}); the candidates are those of the last iteration")


def judged(
    case: Case[AttackProblem], candidates: Float[Tensor, "m c"], outputs: int, loss: float, ranks: Ranks
) -> Judgement:
    """The case's judgement; where it cannot be made, that nothing is certain, with the `loss` of the last step."""
    try:
        found = case.judge(candidates)
        numbers = (found.loss, found.certificate.held_out_loss or 0.0, *found.certificate.confidence)
        if all(math.isfinite(number) for number in numbers) and _finite(found.coefficients):
            return found
        why = "numbers that are not finite"
    except SOLVE_ERRORS as problem:
        why = _in_words(problem, ranks)
    nothing = torch.zeros(len(candidates), outputs, dtype=torch.float64)
    failure = f"the judgement failed ({why}), so the coefficients are unknown (0) and nothing is certain; {WAY_OUT}"
    return Judgement(loss, nothing, unjudged(len(candidates)), {"failure": failure})


def unseen_loss(case: Case[AttackProblem], candidates: Float[Tensor, "m c"], ranks: Ranks) -> float | None:
    """The case's loss on what it held out; None where there is nothing held out, or no number to be had."""
    try:
        found = case.unseen_loss(candidates)
    except SOLVE_ERRORS as problem:
        _in_words(problem, ranks)
        return None
    return found if found is not None and math.isfinite(found) else None


def _ended(what: str, instead_of: str, step: Step, last: Step | None) -> Exception:
    if last is None:
        return ExhumeError(f"expected {instead_of} at iteration {step.iteration}; {WAY_OUT}")
    return SolveFailed(f"{what} at iteration {step.iteration}; the candidates are those of iteration {last.iteration}")


def _in_words(problem: Exception, ranks: Ranks) -> str:
    """What torch said. Other ranks may have got through, and would wait for this one: it stops, and so do they."""
    if ranks.size > 1:
        raise RanksLost(
            f"expected solves that succeed on every rank, found on rank {ranks.rank}: {in_one_line(problem)}; start "
            "again without torchrun: one process goes on from the checkpoint, and keeps what was found"
        ) from problem
    return in_one_line(problem)


def _finite(values: Float[Tensor, "..."]) -> bool:
    return bool(torch.isfinite(values).all())
