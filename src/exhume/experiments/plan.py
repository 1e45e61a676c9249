"""What a sweep will run: every run with its configuration, checked, and the name that follows from it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from exhume.attacks.subspace.attack import Source
from exhume.data.config import DataConfig
from exhume.experiments.attack_request import AttackRequest, PreparedAttack
from exhume.experiments.training import VictimConfig, victim_name
from exhume.victims.network_plans import FactoryConfig, ResNetConfig, VisionTransformerConfig
from exhume.victims.two_layer import TwoLayerConfig

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
    where images lie, which may differ between machines."""

    data: DataConfig
    model: VictimConfig
    defence: str

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
        return victim_name(self.model)

    @property
    def factory(self) -> str | None:
        return self.model.factory if isinstance(self.model, FactoryConfig) else None

    @property
    def is_network(self) -> bool:
        """Whether what an attacker sees are features of a network, and not φ(Vx + b)."""
        return isinstance(self.model, ResNetConfig | VisionTransformerConfig | FactoryConfig)

    @property
    def known_subspace(self) -> Source | None:
        """Where an attacker may have the data's subspace from."""
        knows = isinstance(self.model, TwoLayerConfig) and self.model.knows_first_layer
        return "first-layer" if knows else None


@dataclass(frozen=True)
class PlannedRun:
    """One attack on one victim. `given` are the options as they stand in the spec.

    `work` and `memory` (bytes) are guesses of what it takes.
    """

    victim: PlannedVictim
    attack: AttackRequest
    seed: int
    given: Mapping[str, Any]
    work: float
    memory: float

    @cached_property
    def identity(self) -> dict[str, Any]:
        attack = self.attack.identity(self.victim.is_network, self.victim.known_subspace)
        return {**self.victim.identity, "attack": attack, "attack_seed": self.seed}

    def prepare(self) -> PreparedAttack:
        return self.attack.prepare(self.victim.is_network, self.seed, self.victim.known_subspace)

    @cached_property
    def key(self) -> str:
        return key_of(self.identity)

    def title(self) -> str:
        told = (
            f"{name.partition('.')[2]}={value}"
            for name, value in self.given.items()
            if name not in ("train.kind", "train.data_dir")
        )
        return f"{self.victim.name} {' '.join(told)} seed={self.seed}"


@dataclass(frozen=True)
class Plan:
    """The runs in the order of the grid, each once."""

    runs: tuple[PlannedRun, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """The options that any run was given, in the order in which they come up."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.given))

    def __add__(self, other: "Plan") -> "Plan":
        return plan_of([*self.runs, *other.runs])


def plan_of(runs: Iterable[PlannedRun]) -> Plan:
    """Runs that come up twice are run once, where they came up first."""
    first: dict[str, PlannedRun] = {}
    for run in runs:
        first.setdefault(run.key, run)
    return Plan(tuple(first.values()))
