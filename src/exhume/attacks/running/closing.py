"""How an attack ends: what is shown of its last iterate, and the verdict on that, within its time."""

import time

import torch

from exhume.alarm import OutOfTime, given_up_at
from exhume.attacks.foundation.certificate import unjudged
from exhume.attacks.foundation.judgement import AttackProblem, Case, Judgement
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.state import Step
from exhume.attacks.running.budget import Closing
from exhume.attacks.running.failed_solve import Finished, finished, judged

NOT_IN_TIME = (
    "the budget ended before the verdict, so the coefficients are unknown (0) and nothing is certain; give a longer "
    "--budget"
)


def closed(
    case: Case[AttackProblem],
    method: AnyMethod,
    step: Step,
    failure: str | None,
    stopped: bool,
    outputs: int,
    loss: float,
    ranks: Ranks,
    moment: float,
) -> Closing:
    """`stopped`: it did not end by itself, so its candidates are made fit to be shown. Given up at a `moment`."""
    began = time.monotonic()
    try:
        with given_up_at(moment):
            last = step.candidates
            end = finished(method, case.problem, last, ranks) if stopped else Finished(last, failure)
            judgement = judged(case, end.candidates, outputs, loss, ranks)
            return Closing(step, end, judgement, time.monotonic() - began)
    except OutOfTime:
        nothing = torch.zeros(len(step.candidates), outputs, dtype=torch.float64)
        judgement = Judgement(loss, nothing, unjudged(len(step.candidates)), {"failure": NOT_IN_TIME})
        return Closing(step, Finished(step.candidates, failure), judgement, time.monotonic() - began, whole=False)
