"""The attack on data that lie in a subspace: any method, on candidates x = U z.

Where U comes from:

    first-layer   the change of the first layer's weights, whose row space is the span of the data (`first_layer.py`)
    moments       the moments of the weights, where the first layer never moved (`moments.py`)
    given         somebody who knows

From a first layer the span is exact, and both ends of training are known: features halfway between them are used, and a
second stage lets them move along their own change (`drift.py`). A span from moments is found in part only: there the
second stage is the whole space.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.given import Given, of_the_head
from exhume.attacks.foundation.homogeneous import Homogeneous, in_homogeneous_coordinates, tells_norms
from exhume.attacks.foundation.hyperparameters import Hyperparameter
from exhume.attacks.foundation.judgement import Case, Facts, Resources
from exhume.attacks.foundation.method import Method
from exhume.attacks.foundation.outline import Outline, Source
from exhume.attacks.foundation.parametrisation import Parametrisation, Subspace
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.spectrum import Spectrum
from exhume.attacks.foundation.state import State, Step
from exhume.attacks.single_layer.case import RidgeCase, seen_through
from exhume.attacks.single_layer.method import OnRidgeForm
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.drift import DriftCoordinates, drifted_rows
from exhume.attacks.subspace.first_layer import first_layer_note, first_layer_spectrum
from exhume.attacks.subspace.moments import moment_subspace
from exhume.attacks.subspace.staged import StagedCase, StagedProblem, staged_steps
from exhume.errors import ExhumeError, UsageError
from exhume.features.mixed_rows import MixedRows
from exhume.features.rows import HeldRows
from exhume.observation import Observation
from exhume.observing.dense_layers import trained_rows

DIRECTIONS = 0.5  # of moments, for each sample that the weights could hold: twice the samples at p = 4dn


@dataclass(frozen=True)
class SubspaceAttack(OnRidgeForm[StagedProblem]):
    """`inner` does the work, in the coordinates of the subspace.

    Where the first layer shows no subspace, `insist` refuses; otherwise the whole space is attacked, and it is said so.
    """

    source: Source
    inner: Method[Problem] = field(default_factory=SplitNewton)
    insist: bool = True

    name: ClassVar[str] = "subspace"
    auto_place: ClassVar[int | None] = 20
    audit_place: ClassVar[int | None] = 20
    needs: ClassVar[str] = (
        "It needs features phi(Vx + b) whose V and b moved in training from a known start, or came to rest."
    )
    stands_for: ClassVar[Mapping[str, str]] = {"method": "split-newton", "subspace": "known"}
    composition: ClassVar[Composition] = Composition(
        features="φ(Vx + b), the last layer's",
        target="its weights, or their change",
        coefficients="free, eliminated",
        parametrisation="x = U z, U the span of the first layer's change",
        solver="that of split-newton",
        knowledge="the last layer, and the first one before and after training",
        published="Tansley et al. 2026",
    )

    @classmethod
    def refusal(cls, outline: Outline) -> str | None:
        if outline.network:
            return "expected no subspace with a network, whose first layer is not that of the features; leave it out"
        return None

    @classmethod
    def first_choice(cls, outline: Outline) -> bool:
        return outline.subspace is not None and cls.refusal(outline) is None

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        if observation.features.is_network or (observation.initial_rows is None and observation.subspace is None):
            return ()
        shown = "The change of the first layer shows the span of the data"
        if observation.subspace is not None:
            shown = "The span of the data is known"
        why = f"{shown}, which leaves few unknowns."
        return (PlannedAttack(cls.name, why, seed),)

    @classmethod
    def hyperparameters(cls) -> Mapping[str, Hyperparameter]:
        """Those of the method that its name stands for."""
        return SplitNewton.hyperparameters()

    @property
    def iterations(self) -> int | None:
        return self.inner.iterations

    @property
    def few_rows(self) -> bool:
        return self.inner.few_rows

    @property
    def needs_samples(self) -> bool:
        return self.inner.needs_samples

    def open_case(
        self, observation: Observation, seed: int, held_out: float, resources: Resources
    ) -> Case[StagedProblem]:
        return self.open_stages(observation, seed, held_out, resources)

    def open_stages(self, observation: Observation, seed: int, held_out: float, resources: Resources) -> StagedCase:
        """The problems of the attack's stages, and what is known of the subspace."""
        seen = in_homogeneous_coordinates(observation) if tells_norms(observation) else observation
        opening = _Opening(seen, self, seed, held_out, resources, of_the_head(observation), observation.d)
        match self.source:
            case "given":
                return opening.given()
            case "first-layer":
                return opening.first_layer()
            case "moments":
                return opening.moments()

    def steps(self, problem: StagedProblem, resume: State | None = None) -> Iterator[Step]:
        first = self.inner.as_start() if self.source == "moments" else self.inner
        return staged_steps((first, *[self.inner] * (len(problem.cases) - 1)), problem, resume)

    def finish(self, problem: StagedProblem, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "few c"]:
        return self.inner.finish(problem.cases[-1].problem, candidates)


def require_first_layer(known: bool) -> None:
    if not known:
        raise UsageError(
            "expected an observation that knows the initial first layer, found none; train with "
            "--knows-first-layer, or give --subspace moments or FILE"
        )


@dataclass(frozen=True, eq=False)
class _Opening:
    observation: Observation
    method: SubspaceAttack
    seed: int
    held_out: float
    resources: Resources
    said: Given
    d: int
    """That of the samples; the observation has one more where it is in homogeneous coordinates."""

    def given(self) -> StagedCase:
        columns = self.observation.subspace
        if columns is None:
            raise UsageError("expected a subspace that the data are known to lie in, found none; give --subspace FILE")
        subspace = Subspace.spanned_by(columns)
        note = f"given subspace: {subspace.r} of {subspace.d} dimensions"
        used: Given = {"subspace": f"{subspace.r} of {subspace.d} dimensions"}
        return self._staged(note, subspace.r, used, self._inside(self.observation, subspace))

    def first_layer(self) -> StagedCase:
        observation, initial = self.observation, self.observation.initial_rows
        require_first_layer(initial is not None)
        assert initial is not None
        trained = trained_rows(observation, initial)
        layer = first_layer_spectrum(trained, initial)
        if not layer.exact:
            return self._without_subspace(layer)
        # weight decay forgets the way: near its end the weights belong to the trained features
        used = MixedRows(trained, 0.5, initial, 0.5) if layer.scale == 1 else trained
        features = replace(observation.ridge, rows=used)
        inside = self._inside(replace(observation, features=features), layer.subspace)
        cases = [_with_drift(inside, layer.rank)]
        held = inside.observation.ridge.rows.held
        if self.method.inner.takes_starts and held is not None:
            moving = drifted_rows(held, MixedRows(trained, 1.0, initial, -layer.scale), layer.subspace)
            cases.append(_with_drift(self._drifting(inside, moving, layer.subspace), layer.rank))
        used_of: Given = {"body": "the first layer, whose change was used"}
        return self._staged(first_layer_note(layer), layer.rank, used_of, *cases)

    def moments(self) -> StagedCase:
        if not self.method.inner.takes_starts:
            raise UsageError(
                f"expected --method split-newton with a subspace from moments, found {self.method.inner.name}, which "
                "cannot go on in the whole space from what was found"
            )
        whole = self._standing_for(self._open(self.observation))
        loss, known_count = whole.problem.loss, self.observation.knowledge.samples
        wanted = DIRECTIONS * loss.equations / loss.features.d if known_count is None else 2 * known_count
        subspace = moment_subspace(loss, min(loss.features.d, math.ceil(wanted) + 8), whole.problem.generator())
        inside = _with_drift(self._inside(self.observation, subspace), 1)
        note = f"moments: {subspace.r} of {subspace.d} dimensions, released to all of them after"
        return self._staged(note, subspace.r, {}, inside, whole)

    def _without_subspace(self, layer: Spectrum) -> StagedCase:
        if self.method.insist:
            raise ExhumeError(
                f"expected a first layer whose change has low rank, found that {layer.no_span()}; attack the whole "
                "space with --method split-newton"
            )
        used: Given = {"body": "the first layer, whose change shows no subspace"}
        return self._staged(first_layer_note(layer), None, used, self._standing_for(self._open(self.observation)))

    def _inside(self, observation: Observation, subspace: Subspace) -> RidgeCase:
        case = self._open(seen_through(observation, subspace, self.resources))
        return self._standing_for(case, subspace)

    def _drifting(self, inside: RidgeCase, rows: HeldRows, subspace: Subspace) -> RidgeCase:
        features = replace(inside.observation.ridge, rows=rows)
        case = self._open(replace(inside.observation, features=features))
        return self._standing_for(case, DriftCoordinates(subspace, case.problem.loss.free_norms))

    def _standing_for(self, case: RidgeCase, inner: Parametrisation | None = None) -> RidgeCase:
        extended = self.observation.d > self.d
        return replace(case, stands_for=Homogeneous(self.d, inner) if extended else inner)

    def _open(self, observation: Observation) -> RidgeCase:
        return RidgeCase.open(observation, self.method.few_rows, self.seed, self.held_out, self.resources)

    def _staged(self, note: str, rank: int | None, used: Given, *cases: RidgeCase) -> StagedCase:
        """`used`: what besides the head was made use of."""
        problem = StagedProblem(cases, optional=self.method.source != "moments")
        facts: Facts = {"subspace": note, "subspace_rank": rank}
        if self.method.source == "first-layer" and rank is not None:
            facts["layers_read"] = ["first", "head"]
        return StagedCase(problem, facts, self.said | used)


def _with_drift(case: RidgeCase, at_least: int) -> RidgeCase:
    return replace(case, problem=replace(case.problem, drifts=True, at_least=at_least))
