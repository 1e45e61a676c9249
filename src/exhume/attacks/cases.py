"""An observation made ready for a method: what the method is given, and the verdict on what it finds.

Two kinds of feature maps, two kinds of cases: features φ(Vx + b), whose rows are equations of their own and stream over
V, and the penultimate features of a network, which are evaluated as a whole.
"""

from exhume.attacks.judgement import Means
from exhume.attacks.module_case import ModuleCase
from exhume.attacks.problem import Method
from exhume.attacks.ridge_case import RidgeCase
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures
from exhume.observation import Observation

Case = RidgeCase | ModuleCase


def open_case(observation: Observation, method: Method, seed: int, held_out: float, means: Means) -> Case:
    """The case of an observation; a method for the other kind of features is refused."""
    network = isinstance(observation.features, ModuleFeatures)
    if network != method.for_networks:
        kinds = {True: "a network", False: "features of random rows"}
        raise UsageError(
            f"expected a method for {kinds[network]}, found {method.name}, which is for {kinds[not network]}; "
            "leave --method out"
        )
    if network:
        return ModuleCase.open(observation, seed, held_out, means)
    return RidgeCase.open(observation, method.few_rows, seed, held_out, means)
