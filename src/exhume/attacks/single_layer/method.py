"""What methods for features φ(Vx + b) have in common: how they look at an observation, and the case they open."""

from typing import ClassVar

import torch

from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.foundation.method import Method, P
from exhume.attacks.foundation.outline import RANDOM_ROWS
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.single_layer.case import RidgeCase
from exhume.attacks.single_layer.memory_plan import Sizes, least_bytes
from exhume.attacks.single_layer.problem import Problem
from exhume.observation import Observation
from exhume.observing.ridge_view import seen_as_ridge


class OnRandomRows(Method[P]):
    """Any method for features φ(Vx + b), whatever problem it makes of them."""

    needs: ClassVar[str] = "It is for features of the form phi(Vx + b)."
    attacked: ClassVar[str | None] = RANDOM_ROWS

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        return least_bytes(Sizes.of(observation, observation.features.p, self.few_rows, dtype, False, ranks))


class OnRidgeForm(OnRandomRows[P]):
    """One that also takes networks whose features turn out to have that form."""

    coarse_products: ClassVar[bool] = True

    @classmethod
    def view(cls, observation: Observation) -> Observation:
        return seen_as_ridge(observation)


class RidgeMethod(OnRidgeForm[Problem]):
    """A search for rows that explain the weights over φ(Vx + b)."""

    lowers: ClassVar[bool] = True

    def open_case(self, observation: Observation, seed: int, held_out: float, resources: Resources) -> Case[Problem]:
        return RidgeCase.of(observation, self.few_rows, seed, held_out, resources)
