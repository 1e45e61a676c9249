"""An attack on the observation of a run folder: writes what was found back into the folder."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from exhume.attacks.running.loop import Attacked
from exhume.attacks.running.pooling import run_pool
from exhume.attacks.running.prepare import PreparedAttack, Watch, run
from exhume.attacks.running.snapshots import SNAPSHOTS_FILE, SnapshotKeeper, save_snapshots
from exhume.experiments.run import RunFolder
from exhume.reconstruction import Reconstruction


@dataclass(frozen=True)
class AttackedRun:
    """`summary` is empty on all ranks but the first."""

    summary: dict[str, Any]
    interrupted: bool
    start: str | None = None
    """What came of the search for the initial head, where there was one."""
    continues: bool = True
    """Whether the same command would go on from what an interrupted one found."""


def attack_run(
    folder: RunFolder,
    prepared: PreparedAttack,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> AttackedRun:
    """`watch` sees each iteration of a single attack, `say` is given a line for each attack of a pool."""
    if not prepared.settings.ranks.first:
        return AttackedRun({}, run(prepared, None, folder.checkpoint, SnapshotKeeper()).interrupted)
    with folder.alone("this attack"):
        return _attack(folder, prepared, watch, say)


def _attack(
    folder: RunFolder, prepared: PreparedAttack, watch: Watch | None, say: Callable[[str], None]
) -> AttackedRun:
    start = None if prepared.start is None else prepared.start.describe()
    if prepared.settings.pool > 1:
        pooled = run_pool(prepared, say)
        (folder.path / SNAPSHOTS_FILE).unlink(missing_ok=True)  # those of an earlier attack: a pool has no one way
        summary = folder.save_attack(_kept(pooled, prepared), [])
        return AttackedRun(summary, pooled.interrupted, start, continues=False)
    attacked = run(prepared, watch, folder.checkpoint, SnapshotKeeper())
    found = _kept(attacked, prepared)
    save_snapshots(attacked.snapshots, folder.path / SNAPSHOTS_FILE)
    summary = folder.save_attack(found, attacked.trace)
    if not attacked.stopped:  # not before everything is written: it is hours of work until then
        folder.checkpoint.unlink(missing_ok=True)
    return AttackedRun(summary, attacked.interrupted, start)


def _kept(attacked: Attacked, prepared: PreparedAttack) -> Reconstruction:
    """What was found, with the options that asked for it."""
    return replace(attacked.reconstruction, request=dict(prepared.settings.request))
