"""Attacks as users ask for them: the options of `exhume attack`, which are the keys of a sweep's attack as well."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from exhume.attacks.cases import require_kind
from exhume.attacks.certificate import split_rows
from exhume.attacks.choice import choose_method, known_subspace
from exhume.attacks.informed.case import require_one_output
from exhume.attacks.joining import own_device
from exhume.attacks.loop import Limits, Progress
from exhume.attacks.problem import Method
from exhume.attacks.ranks import ALONE, Ranks
from exhume.attacks.ridge_view import RIDGE_METHODS, seen_as_ridge
from exhume.attacks.silent.layers import with_layers
from exhume.attacks.subspace.attack import Source, require_first_layer
from exhume.attacks.subspace.file import read_subspace
from exhume.errors import UsageError
from exhume.experiments.attack_files import content_digest
from exhume.experiments.attacking import AttackedRun, AttackSettings, attack_run
from exhume.experiments.image_prior import read_spectrum, with_prior, with_spectrum
from exhume.experiments.known_samples import check_missing, keep_known, write_known
from exhume.experiments.pooling import pool_run
from exhume.experiments.run import RunFolder
from exhume.features.module import ModuleFeatures
from exhume.known import load_known
from exhume.observation import Observation
from exhume.requests.attack import AttackOptions
from exhume.requests.request import Option
from exhume.torch_values import parse_device, parse_dtype, parse_products
from exhume.values import parse_samples


@dataclass(frozen=True)
class Target:
    """What a request is checked against: of an observation, or of a victim that is yet to be trained.

    `subspace`: where one of the data can be had from (`known_subspace`). None of `outputs` and `samples`: not known.
    """

    d: int
    network: bool = False
    outputs: int | None = None
    samples: int | None = None
    image_shape: tuple[int, int, int] | None = None
    subspace: Source | None = None

    @classmethod
    def of(cls, observation: Observation) -> "Target":
        return cls(
            d=observation.d,
            network=isinstance(observation.features, ModuleFeatures),
            outputs=len(observation.weights),
            samples=observation.knowledge.samples,
            image_shape=observation.image_shape,
            subspace=known_subspace(observation),
        )


@dataclass(frozen=True, eq=False)
class PreparedAttack:
    """An attack with all that it was given: `run` makes it."""

    folder: RunFolder
    observation: Observation
    method: Method
    settings: AttackSettings
    pool: int

    def run(self, watch: Callable[[Progress], None], told: Callable[[str], None]) -> AttackedRun:
        """`watch` sees each iteration of a single attack, `told` a line for each attack of a pool."""
        if self.pool > 1:
            return pool_run(self.folder, self.method, self.settings, self.pool, self.observation, told)
        return attack_run(self.folder, self.method, self.settings, watch, self.observation)


class AttackRequest(AttackOptions):
    """The options of an attack, and the attack that they come to."""

    def method_for(self, target: Target) -> Method:
        """The method, with all options checked against the victim, but without what files tell it."""
        if self.known is not None and self.method != "informed":
            raise UsageError(f"expected --known with --method informed, found {self.method}")
        source = self._subspace_source()
        if source == "first-layer" and not target.network:
            require_first_layer(target.subspace is not None)
        chosen = choose_method(
            self.method,
            network=target.network,
            known=target.subspace,
            subspace=source,
            step_size=self.step,
            inactive_slope=self.inactive_slope,
            iterations=self.iterations,
            exact=self.exact,
            gradients_at=self.gradients_at,
            rule=self.rule,
        )
        if self.method != "silent-units":  # which reads a layer, whatever the features before the head are
            require_kind(chosen, target.network)
        if self.method == "informed" and target.outputs is not None:
            require_one_output(target.outputs)
        return with_prior(chosen, self.prior, self.spectrum, target.image_shape, self.resolution)

    def settings(self, seed: int, ranks: Ranks = ALONE) -> AttackSettings:
        split_rows(1, self.held_out)  # refuses what is no fraction
        known = AttackOptions.complete().model_fields
        limits = Limits(
            seconds=math.inf if self.budget is None else self.budget,
            memory_bytes=self.memory,
        )
        return AttackSettings(
            samples=parse_samples(str(self.samples)),
            seed=seed,
            limits=limits,
            held_out=self.held_out,
            dtype=parse_dtype(self.dtype),
            products=parse_products(self.products),
            device=own_device(parse_device(self.device)),
            start_seeds=self.start_seeds,
            ranks=ranks,
            request={name: value for name, value in self.to_config().items() if name in known} | {"seed": seed},
        )

    def prepare(self, folder: RunFolder, observation: Observation, seed: int, ranks: Ranks = ALONE) -> PreparedAttack:
        """The attack on the observation of a run, with what its files tell."""
        if self.method in ("auto", "silent-units"):
            observation = with_layers(observation)
        whole = any(layer.reads == "inputs" for layer in observation.layers[:1])  # and no pieces, which are not scored
        if self.method == "auto" and whole and not self._asks_for_more:
            return self.model_copy(update={"method": "silent-units"}).prepare(folder, observation, seed, ranks)
        if self.method in RIDGE_METHODS:
            observation = seen_as_ridge(observation)
        settings, method = self.settings(seed, ranks), self.method_for(Target.of(observation))
        if self._subspace_source() == "given":
            observation = replace(observation, subspace=read_subspace(Path(str(self.subspace)), observation.d))
        if self.method == "informed":
            given = None if self.known is None else Path(self.known)
            observation = replace(observation, known=keep_known(folder, given, observation.d))
        if self.spectrum is not None and observation.image_shape is not None:
            method = with_spectrum(method, Path(self.spectrum), observation.image_shape)
        return PreparedAttack(folder, observation, method, settings, self.pool)

    def files(self) -> dict[str, str]:
        """The options that are files, as they were given."""
        subspace = self.subspace if self._subspace_source() == "given" else None
        named = {"subspace": subspace, "known": self.known, "spectrum": self.spectrum}
        return {option: path for option, path in named.items() if path is not None}

    def read_files(self, target: Target) -> dict[str, str]:
        """Reads each file as the attack will, which refuses a wrong one before anything runs. What is in them, hashed.

        That goes into the name of a run: files may lie elsewhere on another machine, or change.
        """
        paths = {option: Path(path) for option, path in self.files().items()}
        if paths:
            self.method_for(target)
        if "subspace" in paths:
            read_subspace(paths["subspace"], target.d)
        if "known" in paths:
            load_known(paths["known"], target.d)
        if "spectrum" in paths and target.image_shape is not None:
            read_spectrum(paths["spectrum"], target.image_shape)
        return {option: content_digest(path) for option, path in paths.items()}

    def identity(self, target: Target, contents: Mapping[str, str]) -> dict[str, Any]:
        """What makes it another attack: its method by its own name, every setting that is not the default, and what is
        in its files (`read_files`)."""
        self.settings(0)  # refuses what no attack can be told
        told = self.model_dump(mode="json", exclude_defaults=True)
        return told | dict(contents) | {"method": self.method_for(target).name}

    @property
    def _asks_for_more(self) -> bool:
        """Whether an option was given that only attacks on the head have."""
        of_heads = {"subspace", "prior", "step", "inactive_slope", "exact", "products", "pool", "samples"}
        return not of_heads.isdisjoint(self.to_config())

    def _subspace_source(self) -> Source | None:
        match self.subspace:
            case None | "first-layer" | "moments":
                return self.subspace
        return "given"


class SweptAttackRequest(AttackRequest):
    """An attack of a sweep, which also makes its victims: it can do for each of them what `exhume known` does.

    `missing` is the sample that an informed adversary does not know. `seed` is that of the attack; None: the victim's.
    """

    missing: Annotated[int, Field(ge=0), Option("The number of the sample that is not known.")] = 0
    seed: Annotated[int | None, Field(ge=0, lt=2**63), Option("Of the attack; default: the victim's.")] = None

    def method_for(self, target: Target) -> Method:
        if "missing" in self.model_fields_set and not self._knows_others:
            found = f"method {self.method}" if self.method != "informed" else "known, which says what is missing"
            raise UsageError(f"expected missing with method informed and without known, found {found}; leave it out")
        if self._knows_others and target.samples is not None:
            check_missing(self.missing, target.samples)
        return super().method_for(target)

    def prepare(self, folder: RunFolder, observation: Observation, seed: int, ranks: Ranks = ALONE) -> PreparedAttack:
        if self._knows_others:
            write_known(folder, self.missing)
        return super().prepare(folder, observation, seed, ranks)

    def identity(self, target: Target, contents: Mapping[str, str]) -> dict[str, Any]:
        """Without the seed, which is told from that of the victim elsewhere."""
        return {name: value for name, value in super().identity(target, contents).items() if name != "seed"}

    @property
    def _knows_others(self) -> bool:
        return self.method == "informed" and self.known is None
