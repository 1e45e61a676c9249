"""Places from the head, where the search alone stalls: the attack on the last layer's change, inside the same span.

Of a two-layer network the change of the head is a combination of features of the same samples (`subspace/`). What that
attack finds is off by some per cent, because features drift in training; as places for the search it is near enough for
silent units to make it exact. It sees only the units that the search may use.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.foundation.judgement import Case, Resources
from exhume.attacks.silent.span import Span
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.attacks.subspace.staged import StagedProblem
from exhume.errors import ExhumeError
from exhume.features.selected_rows import SelectedRows
from exhume.layer_states import LayerStates
from exhume.observation import Observation

ITERATIONS = 400  # at most; most attacks on heads of this kind end before


@dataclass(frozen=True, eq=False)
class HeadStart:
    attack: SubspaceAttack
    case: Case[StagedProblem]

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
        """None where there is no head over these very units, known at both ends of its training."""
        before, bias = observation.initial_rows, observation.initial_bias
        reads = states.reads == "inputs" and states.source == "training"
        if not reads or before is None or observation.features.is_network or before.p != states.h:
            return None
        features = observation.ridge
        shift = None if features.bias is None else features.bias[units]
        seen = replace(
            observation,
            features=replace(features, rows=SelectedRows(features.rows, units), bias=shift),
            weights=observation.weights[:, units],
            head=None,
            initial_rows=SelectedRows(before, units),
            initial_bias=None if bias is None else bias[units],
            layers=(),
        )
        attack = SubspaceAttack("first-layer", SplitNewton(rounds=2, attempts=1))
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


def _inside(span: Span, inputs: Float[Tensor, "m d"]) -> Float[Tensor, "m r"]:
    """The coordinates of inputs, by least squares: the rows of `unscale` are orthogonal."""
    inputs = inputs.to(span.rows)
    extended = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1) if span.bias else inputs
    sizes = span.unscale.square().sum(dim=1)
    return span.facing(extended @ span.unscale.T / sizes)
