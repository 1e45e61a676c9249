"""Which attacks apply to a target, from cheap to dear, and why the others do not."""

from collections.abc import Collection
from dataclasses import dataclass

from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.registry import known_methods, method_names
from exhume.auditing.attempts import Attempt
from exhume.auditing.target import AuditTarget
from exhume.observation import Observation

_LINEAR = (
    "What the head reads is linear in the inputs: each output's weights are one combination of the samples, in which "
    "single ones cannot be told apart. 'exhume rank' tells which records a linear head was trained on."
)


@dataclass(frozen=True)
class PassedOver:
    method: str
    why: str


@dataclass(frozen=True)
class AuditPlan:
    offers: tuple[PlannedAttack, ...]
    passed_over: tuple[PassedOver, ...]


def make_plan(target: AuditTarget, samples: int | None, seed: int, recipe: Collection[str] = ()) -> AuditPlan:
    """`samples` is n where the owner knows it; an attack that finds n by itself is not told before it has failed.
    `recipe`: how the model was trained, in words.

    Methods that are not offered are listed with the reason: a reader must not take them for tried.
    """
    if target.observation.features.linear:
        return AuditPlan((), tuple(PassedOver(name, _LINEAR) for name in method_names()))
    observation = target.observation
    methods = [method for method in known_methods() if method.audit_place is not None]
    methods.sort(key=lambda method: _place(method, observation, recipe))
    offers = tuple(offer for method in methods for offer in method.offers(target.observation, samples, seed))
    offered = {offer.method for offer in offers}
    others = {method.name: method for method in reversed(known_methods()) if method.name not in offered}
    return AuditPlan(
        offers,
        tuple(
            PassedOver(name, others[name].why_not(target.observation, target.no_silence)) for name in reversed(others)
        ),
    )


def not_needed(plan: AuditPlan, attempts: tuple[Attempt, ...]) -> tuple[PassedOver, ...]:
    """Attacks that were planned and not made, because one before them ended the plan."""
    made = {attempt.offer.method for attempt in attempts}
    left = dict.fromkeys(offer.method for offer in plan.offers if offer.method not in made)
    last = attempts[-1] if attempts else None
    if last is None or last.attacked is None:
        return ()
    why = "The audit was interrupted before it."
    if not last.attacked.interrupted:
        why = f"It is dearer than {last.offer.method}, which had explained the weights before it."
    return tuple(PassedOver(method, why) for method in left)


def _place(method: type[AnyMethod], observation: Observation, recipe: Collection[str]) -> int:
    """A method comes earlier where the observation is made for it, unless the recipe breaks what it assumes."""
    usual = method.audit_place
    own = usual if method.broken_by(observation) & set(recipe) else method.place(observation)
    assert own is not None
    return own
