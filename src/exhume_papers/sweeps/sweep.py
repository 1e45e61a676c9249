"""A grid of victims x attacks x seeds, and the plan that follows from it.

In Python:

    from exhume_papers.sweeps.sweep import Sweep
    sweep = Sweep(
        victims=[{"kind": "rf", "data": "sphere", "dim": 30, "samples": 20, "ratio": [1, 2, 4]}],
        attacks=[{"method": "split-newton"}, {"method": "heavy-ball", "budget": "2m"}],
        seeds=3,
    )

and the same as a file for `exhume sweep`:

    seeds = 3

    [[victim]]
    kind = "rf"
    data = "sphere"
    dim = 30
    samples = 20
    ratio = [1, 2, 4]

    [[attack]]
    method = "split-newton"

    [[attack]]
    method = "heavy-ball"
    budget = "2m"

The keys of a victim are `kind` and the options of `exhume train KIND`, those of an attack the options of `exhume
attack`, both without the dashes before them. A list stands for each of its values in turn. `seeds` is a number of seeds
(3: 0, 1, 2) or a list, for all victims or inside one. An attack has the seed of its victim, or `seed`, its own. What
an informed adversary knows is written for each victim, without the sample `missing` (as by `exhume known --missing`),
or comes from the file `known`. `keep = "results"` drops the weights once a run has its scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from exhume.activations import activation
from exhume.attacks.foundation.outline import Outline
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.defences.kinds import parse_defences
from exhume.errors import UsageError
from exhume.validation import parse_fields
from exhume_papers.making.network_request import FactoryRequest
from exhume_papers.making.request_kinds import request_kind
from exhume_papers.making.victim_request import VictimRequest
from exhume_papers.sweeps.grid import MOST_RUNS, Place, checked, in_python, named, points, refuse, said_with, seeds_of
from exhume_papers.sweeps.plan import PlannedRun, PlannedVictim, SweepPlan, plan_of
from exhume_papers.sweeps.swept_attack import SweptAttackRequest
from exhume_papers.victims.victim_config import VictimConfig

KEPT_MATRICES = 6  # of n x p numbers
PROCESS_BYTES = 4e8
OVERHEAD_WORK = 3e5  # a run of no size at all still takes some time: what as many multiplications would

ELSEWHERE = {
    "victim": {
        "seed": "a sweep has seeds, e.g. seeds = [3]",
        "out": "each run has a folder of its own in that of the sweep ('exhume sweep --out')",
        "json": "it belongs to 'exhume sweep --json'",
    },
    "attack": {
        "run": "each attack is made on every victim",
        "model": "the kind of the victim, package.module:factory, says which code it takes",
        "seeds": "those of the victims hold for their attacks; an attack may have its own seed, e.g. seed = [0, 1]",
        "json": "it belongs to 'exhume sweep --json'",
    },
}
"""Options of `exhume train` and `exhume attack` that no entry of a sweep has, and why."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Sweep(BaseModel):
    """The grid as it was asked for. `plan` checks all of it and works out every run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    victims: tuple[dict[str, Any], ...] = Field(min_length=1)
    attacks: tuple[dict[str, Any], ...] = Field(default=({},), min_length=1)
    seeds: Annotated[int, Field(ge=1, le=MOST_RUNS)] | tuple[Seed, ...] = 1
    keep: Literal["all", "results"] = "all"

    @classmethod
    def parse(cls, **fields: object) -> "Sweep":
        return parse_fields(cls, **fields)

    def plan(self, place: Place | None = None, data_dir: str | None = None) -> SweepPlan:
        """Every run, or a UsageError that names the entry. `data_dir` is for victims that name none."""
        place = place or in_python
        attacks = list(_attack_points(self.attacks, place))
        data, files = DataShelf(), FileShelf()
        runs: list[PlannedRun] = []
        for entry, point, seeds in self._victim_points(place):
            here = place("victim", entry, None)
            request = _request(point, entry, place, data_dir)
            for seed in seeds:
                with said_with(here):
                    victim, dataset = _victim(request.model_copy(update={"seed": seed}), data)
                size = _size(victim.model, dataset)
                for number, given, attack in attacks:
                    options = {f"train.{key}": value for key, value in point.items()}
                    options |= {f"attack.{key}": value for key, value in given.items()}
                    with said_with(place("attack", number, None)):
                        contents = files.read(attack, victim.outline)
                        run = PlannedRun(victim, attack, seed, options, size.work * attack.pool, size.memory, contents)
                        run.key  # noqa: B018 (checks the attack against this kind of victim)
                    runs.append(run)
            if len(runs) > MOST_RUNS:
                raise UsageError(f"expected at most {MOST_RUNS:,} runs in a sweep, found more; split it")
        return plan_of(runs)

    def _victim_points(self, place: Place) -> Iterator[tuple[int, dict[str, Any], Sequence[int]]]:
        for entry, written in enumerate(self.victims):
            options = named(written, "victim", entry, place)
            refuse(options, ELSEWHERE["victim"], "victim", entry, place)
            seeds = seeds_of(options.pop("seeds", self.seeds), place("victim", entry, "seeds"))
            for point in points(options, "victim", entry, place):
                yield entry, point, seeds


class DataShelf:
    """Data sets by their configuration. Images do not depend on the seed and are read once."""

    def __init__(self) -> None:
        self._loaded: dict[DataConfig, Dataset] = {}

    def load(self, config: DataConfig) -> Dataset:
        if config.name == "sphere":
            return load(config)
        same = config.model_copy(update={"seed": 0})
        if same not in self._loaded:
            self._loaded[same] = load(same)
        return self._loaded[same]


class FileShelf:
    """The files of attacks, each read once for all victims of the same form."""

    def __init__(self) -> None:
        self._read: dict[tuple[SweptAttackRequest, Outline], dict[str, str]] = {}

    def read(self, attack: SweptAttackRequest, outline: Outline) -> dict[str, str]:
        """What is in them, hashed, by the options that name them."""
        if (attack, outline) not in self._read:
            self._read[attack, outline] = attack.read_files(outline)
        return self._read[attack, outline]


def _victim(request: VictimRequest, data: DataShelf) -> tuple[PlannedVictim, Dataset]:
    config = request.data_config()
    dataset = data.load(config)
    model, defence = request.config(dataset), request.defences()
    if model.phi is not None:
        activation(model.phi)  # refuses an unknown name
    parse_defences(defence, ridge=model.ridge_penalty, seed=request.seed)
    return PlannedVictim(config, model, defence, _outline(model, dataset), request.kept()), dataset


def _outline(model: VictimConfig, data: Dataset) -> Outline:
    """What will be known of the victim's observation once it is there."""
    n, d = data.inputs.shape
    return Outline(
        d=d,
        network=model.is_network,
        outputs=model.told_outputs,
        samples=n,
        image_shape=data.image_shape,
        subspace="first-layer" if model.told_first_layer else None,
    )


def _request(point: Mapping[str, Any], entry: int, place: Place, data_dir: str | None) -> VictimRequest:
    with said_with(place("victim", entry, "kind")):
        kind = request_kind(point.get("kind"))
    fields = {key: value for key, value in point.items() if key != "kind"}
    if data_dir is not None:
        fields.setdefault("data_dir", data_dir)
    if kind is FactoryRequest:
        fields["factory"] = point["kind"]
    return checked(kind, fields, "victim", entry, place)


def _attack_points(
    entries: Sequence[Mapping[str, Any]], place: Place
) -> Iterator[tuple[int, dict[str, Any], SweptAttackRequest]]:
    for entry, written in enumerate(entries):
        options = named(written, "attack", entry, place)
        refuse(options, ELSEWHERE["attack"], "attack", entry, place)
        for point in points(options, "attack", entry, place):
            yield entry, point, checked(SweptAttackRequest, point, "attack", entry, place)


@dataclass(frozen=True)
class _Size:
    work: float
    """Multiplications of one pass over the weights, about: what runs of one sweep may be compared by."""
    memory: float
    """Bytes of V and of what an attack keeps for each candidate and weight."""


def _size(model: VictimConfig, data: Dataset) -> _Size:
    n, d = data.inputs.shape
    p, rows = float(model.head_weights(data)), model.rows(data)
    memory = data.inputs.itemsize * (rows * d + KEPT_MATRICES * n * rows)
    return _Size(OVERHEAD_WORK + p * n * d, PROCESS_BYTES + memory)
