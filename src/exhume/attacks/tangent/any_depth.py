"""The attack on the change of all parameters of any network: the features are gradients, everything else as it was.

    features       the gradient of the output in all parameters, halfway between both ends of training
    target         the change of all parameters
    coefficients   free, eliminated by projection
    solver         that of the last layer's features

It needs the whole network at both ends. A ReLU has the derivative that it has almost everywhere; how its switching
moves gradients is not seen, which `span.py` has a surrogate for.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.given import Given, of_the_samples, with_smooth_pictures
from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.modules.case import ModuleCase
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.modules.problem import ModuleProblem
from exhume.attacks.tangent.newton import NTK
from exhume.errors import UsageError
from exhume.features.gradient import flattened, gradient_features, halfway, whole_module
from exhume.observation import Observation


@dataclass(frozen=True)
class ModuleTangentAttack(ModuleNewton):
    name: ClassVar[str] = "ntk"
    auto_place: ClassVar[int | None] = None
    audit_place: ClassVar[int | None] = None
    composition: ClassVar[Composition] = NTK

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[ModuleProblem]:
        return open_by_gradients(observation, seed, held_out, resources)


def open_by_gradients(observation: Observation, seed: int, held_out: float, resources: Resources) -> ModuleCase:
    """The case of the change of all parameters. Both ends of training make the features, held-out weights included."""
    case = ModuleCase.open(seen_by_gradients(observation), seed, held_out, resources)
    given: Given = {
        "weights": f"{case.observation.p:,} numbers of all layers",
        "features": case.features.description,
        "initial": "known",
        "body": "all of them",
    }
    return replace(
        case,
        facts={**case.facts, "layers_read": ["all"]},
        given=with_smooth_pictures(given | of_the_samples(observation), observation.image_shape),
        what="changes of weights of all layers",
        looked_at="the features are gradients halfway between both ends of training, of these weights as well",
    )


def seen_by_gradients(observation: Observation) -> Observation:
    """The same network with the gradient of its output for features, and the change of its parameters for weights."""
    features, head = observation.features, observation.head
    ends = features.networks
    if not ends or features.chosen is not None:
        raise UsageError(f"expected a whole network, found {features.description}")
    if len(ends) < 2 or head is None:
        raise UsageError(
            "expected all layers before and after training, found some of them only; train with --features-at midpoint"
        )
    if len(head) != 1:
        raise UsageError(f"expected a network of one output for --method ntk, found {len(head)}")
    trained = whole_module(ends[-1], head).state_dict()
    module = whole_module(ends[0], head - observation.weights)
    initial = module.state_dict()
    change = flattened(trained, module) - flattened(initial, module)
    module.load_state_dict(halfway(initial, trained))
    mapped = gradient_features(module, ends[-1].input_shape)
    return Observation(mapped, change, replace(observation.knowledge, initial_body=False), observation.image_shape)
