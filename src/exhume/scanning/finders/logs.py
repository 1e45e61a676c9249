"""Logs and caches of training: losses of single steps, names of files, samples that were drawn for a look."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

LOG_NAMES = (
    "trainer_state.json",
    "training_log.json",
    "log.txt",
    "metrics.json",
    "all_results.json",
    "train_results.json",
)
LOG_FOLDERS = ("wandb", "mlruns", "lightning_logs", "tensorboard", "runs_tb", "tb_logs", "comet", "neptune")
CACHE_FOLDERS = (".cache", "cache", "__pycache__", ".ipynb_checkpoints", ".pytest_cache")
HISTORY = ".git"


def find(inventory: Inventory) -> Iterator[Finding]:
    tops = dict.fromkeys(
        "/".join(parts[: number + 1])
        for folder in inventory.folders
        for parts in [PurePosixPath(folder).parts]
        for number, part in enumerate(parts)
        if part in (*LOG_FOLDERS, *CACHE_FOLDERS, HISTORY)
    )
    for folder in tops:
        last = PurePosixPath(folder).name
        if last == HISTORY:
            yield _finding(
                "history",
                "the history of a repository",
                folder,
                "every file that was ever in it, deleted ones included",
            )
        elif last in CACHE_FOLDERS:
            yield _finding("cache", "a cache", folder, "copies of data or outputs of an earlier run")
        else:
            yield _finding("log", "logs of training", folder, "settings, paths, losses by step, and often samples")
    for file in inventory.files:
        if set(PurePosixPath(file.name).parts[:-1]) & {*LOG_FOLDERS, *CACHE_FOLDERS, HISTORY}:
            continue
        name = file.path.name
        if file.suffix == ".log" or name in LOG_NAMES or name.startswith("events.out.tfevents"):
            yield _finding("log", "a log of training", file.name, "settings, paths and losses by step")
        elif file.suffix == ".arrow" and name.startswith("cache-"):
            yield _finding("cache", "a cache of a data set", file.name, "records as they were prepared for training")


def _finding(rule: str, what: str, where: str, gives_away: str) -> Finding:
    return Finding(
        rule=rule,
        holds=Holds.LEAD,
        certainty=Certainty.POSSIBLE,
        what=what,
        where=where,
        gives_away=gives_away,
        remedy="leave it out of what is published",
        attack="none is needed: open it",
    )
