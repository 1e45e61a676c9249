"""A victim, trained and written as a run folder: what is seen of it, and the truth beside it."""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch

from exhume.attacks.running.start import drawn, scale_left, without_start
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.defences.kinds import check_surgeon, parse_defences, publish
from exhume.errors import UsageError
from exhume.experiments.preparations import described_preparation
from exhume.experiments.run import check_new, training_checkpoint
from exhume.experiments.truth import save_truth
from exhume.files import SCHEMA, replacing, write_json
from exhume.metrics.floor import floor_of
from exhume.observation import Observation, save_observation
from exhume.version import VERSION
from exhume_papers.making.training import TrainedVictim, train_victim
from exhume_papers.victims.descent_loop import Surroundings
from exhume_papers.victims.private import Progress
from exhume_papers.victims.recipe import TrainingStopped
from exhume_papers.victims.victim_config import VictimConfig


def train_run(
    out: Path,
    data_config: DataConfig,
    config: VictimConfig,
    data: Dataset,
    *,
    defence: str = "",
    request: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Trains a victim on the data and writes its run folder. Returns the summary.

    A network that is interrupted leaves a checkpoint beside `out`, from which the same call goes on. `defence` names
    what is done to the head before it is published, `request` the options that asked for all this.
    """
    check_new(out)
    settings = _config_json(data_config, config, defence)
    defences = parse_defences(defence, ridge=config.ridge_penalty, seed=config.seed)
    check_surgeon(defences, config.halfway)
    around = Surroundings(
        progress=progress,
        checkpoint=training_checkpoint(out),
        keep_checkpoint=True,
        settings={"data": settings["data"], "defence": defence},
    )
    with _checkpointed(around), replacing(out, folder=True) as folder:
        victim = train_victim(config, data, folder, around)
        observation = publish(victim.observation, defences, inputs=data.inputs, initial=victim.initial_head)
        summary = _train_summary(victim, observation, data, defence, config.seed)
        save_observation(observation, folder / "observation.safetensors")
        save_truth(data, victim.coefficients, folder / "truth.safetensors")
        asked = {} if request is None else {"request": dict(request)}
        write_json(folder / "config.json", settings | asked | described_preparation(data.preparation))
        write_json(folder / "summary.json", summary)
    return summary


@contextmanager
def _checkpointed(around: Surroundings) -> Iterator[None]:
    """A checkpoint outlives an interruption and a full disk, but neither success nor a request that cannot be met."""
    path = around.checkpoint
    assert path is not None
    earlier = path.exists()
    try:
        yield
    except UsageError:
        if not earlier:  # an earlier one may be that of another request, and hours of work
            path.unlink(missing_ok=True)
        raise
    except KeyboardInterrupt as stopped:
        if isinstance(stopped, TrainingStopped) or not path.exists():
            raise
        raise TrainingStopped("interrupted before the run folder was whole") from None
    path.unlink(missing_ok=True)


def _train_summary(
    victim: TrainedVictim, observation: Observation, data: Dataset, defence: str, seed: int
) -> dict[str, Any]:
    n, d = data.inputs.shape
    exact = victim.in_the_span and not defence
    return {
        "schema": SCHEMA,
        "victim": victim.name,
        "p": observation.p,
        "d": d,
        "n": n,
        "ratio": observation.p / (d * n),
        **victim.numbers,
        "floor": 0.0 if exact else floor_of(_started(observation, seed), data.inputs),
        "initial": observation.knowledge.initial,
        "defence": defence or None,
        "data": data.description,
    }


def _started(observation: Observation, seed: int) -> Observation:
    """What an attacker sees who has found the seed, where it can be found."""
    if observation.start is None:
        return observation
    head = drawn(observation, seed)
    return without_start(observation, head, scale_left(observation.weights, head))


def _config_json(data_config: DataConfig, config: VictimConfig, defence: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "victim": config.name,
        "data": data_config.model_dump(mode="json"),
        "model": config.model_dump(mode="json"),
        "defence": defence or None,
        "versions": {
            "exhume": VERSION,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
    }
