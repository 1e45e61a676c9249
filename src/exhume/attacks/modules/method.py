"""What methods for the penultimate features of networks have in common."""

from typing import ClassVar

import torch

from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.foundation.method import Method
from exhume.attacks.foundation.outline import NETWORK
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.modules.case import ModuleCase
from exhume.attacks.modules.memory_plan import NetworkSizes
from exhume.attacks.modules.problem import ModuleProblem
from exhume.observation import Observation


class ModuleMethod(Method[ModuleProblem]):
    needs: ClassVar[str] = "It is for networks whose features have another form."
    attacked: ClassVar[str | None] = NETWORK

    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        return NetworkSizes.of(observation, dtype).least_bytes

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[ModuleProblem]:
        return ModuleCase.open(observation, seed, held_out, resources)
