"""Places from the head, where the search alone stalls: the attack on the last layer's change, inside the same span.

The change of the head is a combination of features of the same samples, for two layers (`subspace/`) or more
(`modules/`). What that attack finds is off by some per cent, because features drift in training; as places for the
search it is near enough for silent units to make it exact. Of two layers it sees only the units that the search may
use; the features of deeper networks are made by all units.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.foundation.judgement import AttackProblem, Case, Resources
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.silent.span import Span
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.errors import ExhumeError
from exhume.features.rows import Rows
from exhume.features.selected_rows import SelectedRows
from exhume.layer_states import LayerStates
from exhume.observation import Observation

ITERATIONS = 400  # at most; most attacks on heads of this kind end before


@dataclass(frozen=True, eq=False)
class HeadStart:
    attack: AnyMethod
    case: Case[AttackProblem]

    @classmethod
    def of(
        cls,
        observation: Observation,
        states: LayerStates,
        units: Int[Tensor, " u"],
        seed: int,
        held_out: float,
        resources: Resources,
    ) -> "HeadStart | None":
        """None where there is no head behind this layer, known at both ends of its training."""
        if states.reads != "inputs" or states.source != "training" or observation.knowledge.initial != "known":
            return None
        attack: AnyMethod
        if observation.features.is_network:
            attack, seen = ModuleNewton(), replace(observation, layers=(states,))
        elif observation.initial_rows is not None and observation.initial_rows.p == states.h:
            attack = SubspaceAttack("first-layer", SplitNewton(rounds=2, attempts=1))
            seen = _of_units(observation, observation.initial_rows, units)
        else:
            return None
        try:
            return cls(attack, attack.open_case(seen, seed, held_out, resources))
        except ExhumeError:  # features that this attack refuses: there is no such start
            return None

    def points(self, span: Span) -> Iterator[Float[Tensor, "m r"]]:
        """Places in the span, better from step to step."""
        for step in self.attack.steps(self.case.problem):
            yield _inside(span, self.case.lift(step.candidates))
            if step.iteration >= ITERATIONS:
                return


def _of_units(observation: Observation, before: Rows, units: Int[Tensor, " u"]) -> Observation:
    features, bias = observation.ridge, observation.initial_bias
    shift = None if features.bias is None else features.bias[units]
    return replace(
        observation,
        features=replace(features, rows=SelectedRows(features.rows, units), bias=shift),
        weights=observation.weights[:, units],
        head=None,
        initial_rows=SelectedRows(before, units),
        initial_bias=None if bias is None else bias[units],
        layers=(),
    )


def _inside(span: Span, inputs: Float[Tensor, "m d"]) -> Float[Tensor, "m r"]:
    """The coordinates of inputs, by least squares: the rows of `unscale` are orthogonal."""
    inputs = inputs.to(span.rows)
    extended = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1) if span.bias else inputs
    sizes = span.unscale.square().sum(dim=1)
    return span.facing(extended @ span.unscale.T / sizes)
