"""An observation made ready for a method: what the method is given, and the verdict on what it finds.

Two kinds of feature maps, two kinds of cases: features φ(Vx + b), whose rows are equations of their own and stream over
V, and the penultimate features of a network, which are evaluated as a whole. An attack in a subspace has one of the
former for each of its stages.
"""

from exhume.attacks.informed.attack import InformedAttack
from exhume.attacks.informed.case import InformedCase
from exhume.attacks.judgement import Means
from exhume.attacks.modules.case import ModuleCase
from exhume.attacks.modules.tangent import ModuleTangentAttack, open_by_gradients
from exhume.attacks.prior.attack import ImagePrior
from exhume.attacks.prior.problem import PriorCase
from exhume.attacks.problem import Method
from exhume.attacks.ridge.case import RidgeCase
from exhume.attacks.silent.attack import SilentCase, SilentUnits
from exhume.attacks.staged import StagedCase
from exhume.attacks.subspace.attack import SubspaceAttack, open_subspace
from exhume.attacks.tangent.case import TangentCase
from exhume.attacks.tangent.newton import KktAttack, NtkAttack
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures
from exhume.observation import Observation

Case = RidgeCase | ModuleCase | StagedCase | TangentCase | InformedCase | PriorCase | SilentCase


SHARED_METHODS = ("split-newton", "heavy-ball")  # all their sums over rows are sums over ranks


def require_kind(method: Method, network: bool) -> None:
    if network != method.for_networks:
        kinds = {True: "a network", False: "features of random rows"}
        raise UsageError(
            f"expected a method for {kinds[network]}, found {method.name}, which is for {kinds[not network]}; "
            "leave --method out"
        )


def open_case(observation: Observation, method: Method, seed: int, held_out: float, means: Means) -> Case:
    """The case of an observation; a method for the other kind of features is refused."""
    network = isinstance(observation.features, ModuleFeatures)
    if not isinstance(method, SilentUnits):  # which reads a layer, whatever the features before the head are
        require_kind(method, network)
    if means.ranks.size > 1 and method.name not in SHARED_METHODS:
        raise UsageError(
            f"expected one process for {method.name}, found {means.ranks.size} ranks; start it without torchrun, or "
            f"take {' or '.join(SHARED_METHODS)}, whose rows can be shared"
        )
    if isinstance(method, SilentUnits):
        return SilentCase.open(observation, seed, held_out, means)
    if isinstance(method, ModuleTangentAttack):
        return open_by_gradients(observation, seed, held_out, means)
    if network:
        return ModuleCase.open(observation, seed, held_out, means)
    if isinstance(method, InformedAttack):
        return InformedCase.open(observation, seed, held_out, means)
    if isinstance(method, NtkAttack | KktAttack):
        return TangentCase.open(observation, method.view(), seed, held_out, means)
    if isinstance(method, SubspaceAttack):
        return open_subspace(observation, method, seed, held_out, means)
    if isinstance(method, ImagePrior):
        return _open_prior(observation, method, seed, held_out, means)
    return RidgeCase.open(observation, method.few_rows, seed, held_out, means)


def _open_prior(observation: Observation, method: ImagePrior, seed: int, held_out: float, means: Means) -> PriorCase:
    """A prior over the case of pixels, or over that of a subspace's coordinates."""
    if method.within is None:
        inner, facts = RidgeCase.open(observation, method.few_rows, seed, held_out, means), None
        given = inner.given
    else:
        staged = open_subspace(observation, method.within, seed, held_out, means)
        inner, facts, given = staged.problem.cases[0], staged.facts, staged.given
    shape, finest = observation.image_shape, method.resolution
    return PriorCase.open(inner, method.spectrum, means, shape, given=given, resolution=finest, facts=facts)
