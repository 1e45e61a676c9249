"""Trials on how wide a model has to be: each makes a victim, attacks it, and hands back numbers."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.running.loop import run_attack
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.attacks.subspace.first_layer import first_layer_spectrum
from exhume.attacks.subspace.moments import moment_subspace
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.features.rows import hold
from exhume.metrics.errors import evaluate
from exhume_papers.studies.principal_angles import principal_angles
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

SEARCH = SplitNewton()


@dataclass(frozen=True)
class WidthTrial:
    """Random features of data in r of d dimensions; `known`: whether the attacker knows the subspace."""

    dimension: int
    ambient: int
    samples: int
    width: int
    known: bool
    seed: int

    def run(self) -> float:
        """The error rho of an attack that is told n."""
        data, basis = self._drawn()
        config = RandomFeaturesConfig(params=self.width, seed=self.seed)
        observation = train_random_features(config, data, draw_rows(config, self.ambient)).observation
        method: AnyMethod = SEARCH
        if self.known:
            observation = replace(observation, subspace=basis)
            method = SubspaceAttack("given", SEARCH)
        found = run_attack(observation.knowing(self.samples), method, seed=self.seed).reconstruction
        return evaluate(data.inputs, found.candidates).error

    def _drawn(self) -> tuple[Dataset, Float[Tensor, "d r"]]:
        """The samples, and a basis of the subspace, which is more than their span where they are fewer than r."""
        count = max(self.samples, 2 * self.dimension)
        drawn = DataConfig(name="sphere", samples=count, dim=self.ambient, subspace=self.dimension, seed=self.seed)
        more = load(drawn)
        basis = torch.linalg.svd(more.inputs.double(), full_matrices=False).Vh[: self.dimension].T.contiguous()
        few = slice(0, self.samples)
        parts = {name: getattr(more, name)[few] for name in ("inputs", "labels", "class_index")}
        return replace(more, **parts), basis


@dataclass(frozen=True)
class AngleTrial:
    """A trained two-layer network on data in r of d dimensions."""

    dimension: int
    ambient: int
    samples: int
    width: int
    recipe: DescentRecipe
    seed: int

    def run(self) -> tuple[float, bool]:
        """The largest angle between the data's span and that of the first layer's change, and whether it is exact."""
        data = load(
            DataConfig(name="sphere", samples=self.samples, dim=self.ambient, subspace=self.dimension, seed=self.seed)
        )
        config = TwoLayerConfig(width=self.width, recipe=self.recipe, seed=self.seed, knows_first_layer=True)
        observation = train_two_layer(config, data).observation
        assert observation.initial_rows is not None
        found = first_layer_spectrum(observation.ridge.rows, observation.initial_rows)
        truth = torch.linalg.svd(data.inputs.double(), full_matrices=False).Vh[: self.dimension].T
        return float(principal_angles(found.subspace.basis, truth)[0]), found.exact


@dataclass(frozen=True)
class MomentTrial:
    """Random features with ReLU of data in all of d dimensions."""

    ambient: int
    samples: int
    width: int
    directions: int
    seed: int

    def run(self) -> float:
        """The mean share of the samples' energy that the span of the weights' moments captures."""
        data = load(DataConfig(name="sphere", samples=self.samples, dim=self.ambient, seed=self.seed))
        config = RandomFeaturesConfig(params=self.width, seed=self.seed)
        observation = train_random_features(config, data, draw_rows(config, self.ambient)).observation
        features = replace(observation.ridge, rows=hold(observation.ridge.rows))
        stream = torch.Generator().manual_seed(self.seed)
        found = moment_subspace(SpanLoss(features, observation.weights), self.directions, stream)
        inside = (data.inputs @ found.basis).square().sum(dim=1) / data.inputs.square().sum(dim=1)
        return float(inside.mean())
