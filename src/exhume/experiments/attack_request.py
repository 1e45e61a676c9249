"""Attacks as users ask for them: the options of `exhume attack`, which are the keys of a sweep's attack as well."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from exhume.attacks.foundation.certificate import split_rows
from exhume.attacks.foundation.hyperparameters import OptionValue
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Outline, Source
from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.attacks.registry import AUTO, known_methods, methods_called
from exhume.attacks.running.budget import Limits
from exhume.attacks.running.choice import choose
from exhume.attacks.running.joining import own_device
from exhume.attacks.running.prepare import PreparedAttack, prepare
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.subspace.file import read_subspace
from exhume.errors import UsageError
from exhume.experiments.attack_files import content_digest, read_spectrum
from exhume.experiments.known_samples import keep_known
from exhume.experiments.run import RunFolder
from exhume.known import Known, load_known
from exhume.observation import Observation
from exhume.recipe import read_recipe
from exhume.requests.attack import AttackOptions
from exhume.torch_values import parse_device, parse_dtype, parse_products
from exhume.values import parse_samples


class AttackRequest(AttackOptions):
    """The options of an attack, and the attack that they come to."""

    def method_for(self, outline: Outline) -> AnyMethod:
        """The method, with all options checked against the victim, but without what files tell it."""
        return choose(self.settings(), lambda method: outline)

    def settings(
        self, seed: int = 0, ranks: Ranks = ALONE, image_shape: tuple[int, int, int] | None = None
    ) -> AttackSettings:
        """All but what files say of the data. `image_shape` is that of the images to measure a spectrum for."""
        split_rows(1, self.held_out)  # refuses what is no fraction
        self._check_files_are_used()
        known = AttackOptions.complete().model_fields
        spectrum = None
        if self.spectrum is not None and image_shape is not None:
            spectrum = read_spectrum(Path(self.spectrum), image_shape)
        return AttackSettings(
            method=self.method,
            options=self.options(),
            subspace=self._subspace_source(),
            prior=self.prior,
            spectrum=spectrum,
            resolution=self.resolution,
            samples=parse_samples(str(self.samples)),
            seed=seed,
            limits=Limits(math.inf if self.budget is None else self.budget, self.memory),
            held_out=self.held_out,
            dtype=parse_dtype(self.dtype),
            products=parse_products(self.products),
            device=own_device(parse_device(self.device)),
            start_seeds=self.start_seeds,
            pool=self.pool,
            ranks=ranks,
            request={name: value for name, value in self.to_config().items() if name in known} | {"seed": seed},
        )

    def options(self) -> dict[str, OptionValue]:
        """The hyperparameters that were given."""
        names = {name for method in known_methods() for name in method.hyperparameters()}
        given = {name: getattr(self, name, None) for name in names & type(self).model_fields.keys()}
        return {name: value for name, value in given.items() if value is not None and value is not False}

    def prepare(
        self,
        folder: RunFolder,
        observation: Observation,
        seed: int,
        ranks: Ranks = ALONE,
        since: float | None = None,
    ) -> PreparedAttack:
        """The attack on the observation of a run, with what its files tell. Its time counts from the moment `since`."""
        settings = self.settings(seed, ranks, observation.image_shape)
        settings = replace(settings, limits=replace(settings.limits, since=since))
        if settings.subspace == "given":
            observation = replace(observation, subspace=read_subspace(Path(str(self.subspace)), observation.d))
        if self._takes_known:
            observation = replace(observation, known=self.known_samples(folder, observation.d))
        if self.recipe_file is not None:
            observation = replace(observation, recipe=read_recipe(Path(self.recipe_file)))
        return prepare(observation, settings)

    def known_samples(self, folder: RunFolder, d: int) -> Known:
        """What an informed adversary knows, kept in the folder."""
        return keep_known(folder, None if self.known is None else Path(self.known), d)

    def files(self) -> dict[str, str]:
        """The options that are files, as they were given."""
        subspace = self.subspace if self._subspace_source() == "given" else None
        named = {"subspace": subspace, "known": self.known, "spectrum": self.spectrum, "recipe": self.recipe_file}
        return {option: path for option, path in named.items() if path is not None}

    def read_files(self, outline: Outline) -> dict[str, str]:
        """Reads each file as the attack will, which refuses a wrong one before anything runs. What is in them, hashed.

        That goes into the name of a run: files may lie elsewhere on another machine, or change.
        """
        paths = {option: Path(path) for option, path in self.files().items()}
        if paths:
            self.method_for(outline)
        if "subspace" in paths:
            read_subspace(paths["subspace"], outline.d)
        if "known" in paths:
            load_known(paths["known"], outline.d)
        if "recipe" in paths:
            read_recipe(paths["recipe"])
        if "spectrum" in paths and outline.image_shape is not None:
            read_spectrum(paths["spectrum"], outline.image_shape)
        return {option: content_digest(path) for option, path in paths.items()}

    def identity(self, outline: Outline, contents: Mapping[str, str]) -> dict[str, Any]:
        """What makes it another attack: its method by its own name, every setting that is not the default, and what is
        in its files (`read_files`)."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        return given | dict(contents) | {"method": self.method_for(outline).name}

    @property
    def _takes_known(self) -> bool:
        return self.method != AUTO and any(method.takes_known for method in methods_called(self.method))

    @property
    def _has_prior(self) -> bool:
        named = () if self.method == AUTO else methods_called(self.method)
        return self.prior != "none" or any("prior" in method.stands_for for method in named)

    def _check_files_are_used(self) -> None:
        """Refuses files and options that nothing asks for."""
        if self.known is not None and not self._takes_known:
            takers = " or ".join(method.name for method in known_methods() if method.takes_known)
            raise UsageError(f"expected --known with --method {takers}, found {self.method}")
        if self.recipe_file is not None and self.method != "replay":
            raise UsageError(f"expected --recipe-file with --method replay, found {self.method}")
        if not self._has_prior:
            for option, value in (("--spectrum", self.spectrum), ("--resolution", self.resolution)):
                if value is not None:
                    raise UsageError(f"expected {option} with --prior image, found it without; add --prior image")

    def _subspace_source(self) -> Source | None:
        match self.subspace:
            case None | "first-layer" | "moments":
                return self.subspace
        return "given"
