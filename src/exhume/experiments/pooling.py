"""One attack from several seeds, and what its runs agree on (`attacks/agreement.py`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from exhume.attacks.agreement import Cluster, Member, agree
from exhume.attacks.choice import tell
from exhume.attacks.loop import run_attack
from exhume.attacks.problem import Method
from exhume.attacks.ridge.room import require_room
from exhume.experiments.attacking import AttackedRun, AttackSettings
from exhume.experiments.run import RunFolder
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction


@dataclass(frozen=True, eq=False)
class Pooled:
    """The clusters' means as a reconstruction, the clusters, and the runs that they come from."""

    reconstruction: Reconstruction
    clusters: tuple[Cluster, ...]
    runs: tuple[Reconstruction, ...]


def pool_run(
    run: RunFolder,
    method: Method,
    settings: AttackSettings,
    count: int,
    observation: Observation,
    told: Callable[[str], None],
) -> AttackedRun:
    """Attacks from `count` seeds, each within the limits, and writes what they agree on. Ctrl-C ends the pool early."""
    seen, found, interrupted = tell(observation, method, settings.samples), [], False
    require_room(seen, method, settings.limits.memory_bytes, settings.dtype, settings.ranks)
    for seed in range(settings.seed, settings.seed + count):
        attacked = run_attack(
            seen,
            method,
            seed=seed,
            limits=settings.limits,
            held_out=settings.held_out,
            dtype=settings.dtype,
            products=settings.products,
            device=settings.device,
        )
        found.append(attacked.reconstruction)
        last = attacked.reconstruction
        told(f"seed {seed}: {last.outcome.value}, loss {last.loss:.1e}, {len(last.candidates)} candidates")
        if attacked.interrupted:
            interrupted = True
            break
    pooled = pool(tuple(found))
    return AttackedRun(run.save_attack(pooled.reconstruction, []), interrupted)


def pool(runs: tuple[Reconstruction, ...]) -> Pooled:
    """Means of clusters, best agreement first, each with the coefficients and the confidence of its surest member.

    Loss, held-out loss and outcome are those of the run that predicts its held-out weights best.
    """
    clusters = agree([found.candidates for found in runs])
    best = min(runs, key=_unexplained)
    surest = [max(cluster.members, key=lambda member: _confidence(runs, member)) for cluster in clusters]
    confidence = tuple(_confidence(runs, member) for member in surest)
    facts = {
        **best.facts,
        "pooled_runs": len(runs),
        "cluster_sizes": [cluster.size for cluster in clusters],
        "agreement": [round(cluster.agreement, 4) for cluster in clusters],
    }
    reconstruction = replace(
        best,
        candidates=torch.stack([cluster.mean for cluster in clusters]),
        coefficients=torch.stack([runs[member.run].coefficients[member.candidate] for member in surest]),
        certificate=replace(best.certificate, confidence=confidence),
        iterations=sum(found.iterations for found in runs),
        passes=sum(found.passes for found in runs),
        seconds=sum(found.seconds for found in runs),
        facts=facts,
    )
    return Pooled(reconstruction, clusters, runs)


def _confidence(runs: tuple[Reconstruction, ...], member: Member) -> float:
    return runs[member.run].certificate.confidence[member.candidate]


def _unexplained(found: Reconstruction) -> float:
    return found.loss if found.held_out_loss is None else found.held_out_loss
