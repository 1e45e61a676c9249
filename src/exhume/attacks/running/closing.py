"""How an attack ends: what is shown of its last iterate, the verdict on that within its time, and a look back."""

import time

import torch

from exhume.alarm import OutOfTime, given_up_at
from exhume.attacks.foundation.certificate import unjudged
from exhume.attacks.foundation.judgement import AttackProblem, Case, Judgement
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.state import Step
from exhume.attacks.running.budget import Closing
from exhume.attacks.running.failed_solve import Finished, finished, judged, unseen_loss
from exhume.attacks.running.snapshots import Moment, Snapshot
from exhume.observation import Observation

MOST_UNSEEN = 5e11  # multiplications that the losses along the way may take: seconds
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


def looked_back(
    case: Case[AttackProblem],
    moments: tuple[Moment, ...],
    device: torch.device,
    observation: Observation,
    ranks: Ranks,
    until: float,
) -> tuple[tuple[Snapshot, ...], tuple[tuple[int, float], ...]]:
    """Inputs of moments of the way, and the loss of each on what the case held out, where that costs seconds at most.

    No loss is worked out after the moment `until`.

    The attack is over: no step, no choice between results and no verdict depends on it.
    """
    snapshots, along = [], []
    cheap = 6.0 * observation.features.p * observation.d * sum(len(moment.places) for moment in moments) <= MOST_UNSEEN
    for moment in moments:
        places = moment.places.to(device)
        inputs = case.lift(places).to(device="cpu", dtype=torch.float32)
        snapshots.append(Snapshot(moment.iteration, moment.passes, moment.loss, inputs))
        try:
            with given_up_at(until):
                loss = unseen_loss(case, places, ranks) if cheap else None
        except OutOfTime:
            loss, cheap = None, False
        along += [] if loss is None else [(moment.iteration, loss)]
    return tuple(snapshots), tuple(along)
