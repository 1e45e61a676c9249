"""What held-out weights say of the way that an attack went, once it is over."""

import torch

from exhume.alarm import OutOfTime, given_up_at
from exhume.attacks.foundation.judgement import AttackProblem, Case
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.running.failed_solve import unseen_loss
from exhume.attacks.running.snapshots import Moment, Snapshot
from exhume.observation import Observation

MOST_UNSEEN = 5e11  # multiplications that the losses along the way may take: seconds


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
