"""What a sweep will run: every run with its configuration, checked, and the name that follows from it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Outline
from exhume.attacks.running.prepare import PreparedAttack
from exhume.data.config import DataConfig
from exhume.experiments.run import RunFolder
from exhume.observation import Observation
from exhume.private_paths import without_folder
from exhume_papers.sweeps.swept_attack import SweptAttackRequest
from exhume_papers.victims.victim_config import VictimConfig

KEY_SCHEMA = 1
"""To be raised when the same configuration comes to mean something else: folders of before are then not used."""
KEY_BYTES = 8


def canonical(value: Mapping[str, Any]) -> str:
    """The same text for the same settings, in whatever order they were given.

    >>> canonical({"b": 1.0, "a": [True, None]})
    '{"a":[true,null],"b":1.0}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def key_of(value: Mapping[str, Any]) -> str:
    text = canonical({"schema": KEY_SCHEMA, **value})
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).hexdigest()


@dataclass(frozen=True)
class PlannedVictim:
    """Settings at their default are left out of the key: one that is added later changes no key. So is the place
    where images lie, which may differ between machines. `outline` follows from the rest, and from the data. `asked` are
    the options that asked for it first."""

    data: DataConfig
    model: VictimConfig
    defence: str
    outline: Outline
    asked: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def identity(self) -> dict[str, Any]:
        return {
            "victim": self.name,
            "data": self.data.model_dump(mode="json", exclude_defaults=True, exclude={"data_dir"}),
            "model": self.model.model_dump(mode="json", exclude_defaults=True),
            "defence": self.defence,
        }

    @cached_property
    def key(self) -> str:
        return key_of(self.identity)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def factory(self) -> str | None:
        return self.model.own_code


@dataclass(frozen=True)
class PlannedRun:
    """One attack on one victim. `seed` is that of the victim. `given` are the options as they stand in the spec.

    `work` and `memory` (bytes) are guesses of what it takes. `contents` hashes what is in the files of the attack.
    """

    victim: PlannedVictim
    attack: SweptAttackRequest
    seed: int
    given: Mapping[str, Any]
    work: float
    memory: float
    contents: Mapping[str, str] = field(default_factory=dict)

    @property
    def attack_seed(self) -> int:
        return self.seed if self.attack.seed is None else self.attack.seed

    @cached_property
    def identity(self) -> dict[str, Any]:
        attack = self.attack.identity(self.victim.outline, self.contents)
        return {**self.victim.identity, "attack": attack, "attack_seed": self.attack_seed}

    @property
    def attack_words(self) -> dict[str, Any]:
        """The attack for people who read config.json: its identity, with files by their names."""
        return self.identity["attack"] | self.attack.files() | {"seed": self.attack_seed}

    def method(self) -> AnyMethod:
        """Without what files tell it."""
        return self.attack.method_for(self.victim.outline)

    def prepare(self, folder: RunFolder, observation: Observation) -> PreparedAttack:
        return self.attack.prepare(folder, observation, self.attack_seed)

    @cached_property
    def key(self) -> str:
        return key_of(self.identity)

    def title(self) -> str:
        words = (
            f"{name.partition('.')[2]}={without_folder(value)}"
            for name, value in self.given.items()
            if name not in ("train.kind", "train.data_dir")
        )
        return f"{self.victim.name} {' '.join(words)} seed={self.seed}"


@dataclass(frozen=True)
class SweepPlan:
    """The runs in the order of the grid, each once."""

    runs: tuple[PlannedRun, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """The options that any run was given, in the order in which they come up."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.given))

    def __add__(self, other: "SweepPlan") -> "SweepPlan":
        return plan_of([*self.runs, *other.runs])


def plan_of(runs: Iterable[PlannedRun]) -> SweepPlan:
    """Runs that come up twice are run once, where they came up first."""
    first: dict[str, PlannedRun] = {}
    for run in runs:
        first.setdefault(run.key, run)
    return SweepPlan(tuple(first.values()))
