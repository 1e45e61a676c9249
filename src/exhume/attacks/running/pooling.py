"""One attack from several seeds, and what its runs agree on (`agreement.py`)."""

from collections.abc import Callable
from dataclasses import replace

import torch

from exhume.attacks.running.agreement import RunCandidate, agree, support_of
from exhume.attacks.running.loop import Attacked
from exhume.attacks.running.prepare import PreparedAttack, run
from exhume.reconstruction import Outcome, Reconstruction

CALLED = 0.5  # the confidence from which a candidate is called recovered


def run_pool(prepared: PreparedAttack, say: Callable[[str], None] = lambda line: None) -> Attacked:
    """Attacks from as many seeds as asked for, all of them within the limits. Ctrl-C ends the pool early.

    `say` is given a line after each.
    """
    settings, found, interrupted = prepared.settings, [], False
    limits = settings.limits.begun
    for index in range(settings.pool):
        seed = settings.seed + index
        own = replace(settings, seed=seed, limits=limits.share(settings.pool - index))
        attacked = run(replace(prepared, settings=own))
        last = attacked.reconstruction
        found.append(last)
        say(f"seed {seed}: {last.outcome.value}, loss {last.loss:.1e}, {len(last.candidates)} candidates")
        if attacked.interrupted:
            interrupted = True
            break
    return Attacked(pool(tuple(found)), [], interrupted)


def pool(runs: tuple[Reconstruction, ...]) -> Reconstruction:
    """What runs agree on, best agreement first.

    A run that was certain of everything is the result, and the others only say how far they agree with it. Otherwise
    it is the surest member of each cluster that several runs found or that one of them is sure of (of all clusters,
    where there is none of these): what it is trusted for is its own, and not a mean's. Such a set was judged by
    nobody as a whole, so it is `partial` at most, and its losses are those of the run that fits best: by the weights
    that the runs used, since held-out weights choose nothing.
    """
    best = min(runs, key=lambda found: (found.outcome is not Outcome.RECOVERED, found.loss))
    found = best if best.outcome is Outcome.RECOVERED else _means(runs, best)
    support = support_of(found.candidates, [run.candidates for run in runs])
    order = support.agreement.argsort(descending=True, stable=True)
    confidence = tuple(found.certificate.confidence[index] for index in order.tolist())
    return replace(
        found,
        candidates=found.candidates[order],
        coefficients=found.coefficients[order],
        certificate=replace(found.certificate, confidence=confidence, doubtful={}),
        iterations=sum(run.iterations for run in runs),
        passes=sum(run.passes for run in runs),
        seconds=sum(run.seconds for run in runs),
        facts={
            **{key: fact for key, fact in found.facts.items() if key != "doubtful"},  # in another order
            "pooled_runs": len(runs),
            "judged_seed": best.seed,
            "found_by_runs": support.runs[order].tolist(),
            "agreement": [round(value, 4) for value in support.agreement[order].tolist()],
        },
    )


def _means(runs: tuple[Reconstruction, ...], best: Reconstruction) -> Reconstruction:
    clusters = agree([found.candidates for found in runs])
    surest = [max(cluster.members, key=lambda member: _confidence(runs, member)) for cluster in clusters]
    sure = [_confidence(runs, member) >= CALLED for member in surest]
    kept = [i for i, cluster in enumerate(clusters) if cluster.size > 1 or sure[i]] or list(range(len(clusters)))
    outcome = Outcome.PARTIAL if any(sure) else best.outcome
    confidence = tuple(_confidence(runs, surest[index]) for index in kept)
    return replace(
        best,
        candidates=torch.stack([runs[surest[i].run].candidates[surest[i].candidate] for i in kept]),
        coefficients=torch.stack([runs[surest[i].run].coefficients[surest[i].candidate] for i in kept]),
        certificate=replace(best.certificate, outcome=outcome, confidence=confidence),
    )


def _confidence(runs: tuple[Reconstruction, ...], member: RunCandidate) -> float:
    return runs[member.run].certificate.confidence[member.candidate]
