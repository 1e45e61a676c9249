"""Two released versions as a target: what was deleted, added or trained on between them."""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from exhume.auditing.layers import LayerFact
from exhume.auditing.target import AuditTarget
from exhume.errors import ExhumeError, UsageError
from exhume.observation import Knowledge, Observation
from exhume.observing.two_versions import TwoVersions, between_versions

OF_NETWORKS = (
    "Two versions: {old} was taken as the state before {new}. What is looked for are the records that were trained on "
    "between them; records that both were trained on are looked for only as far as training went on with them."
)


def target_of_versions(target: AuditTarget, old: Float[Tensor, "k p"], public: Float[Tensor, "N d"]) -> AuditTarget:
    """`target` is the newer version over known features; the attack sees the change, as public records weigh it."""
    features = target.observation.ridge
    if features.linear:
        raise UsageError(
            "expected features phi(Vx + b) with an activation for two versions, found linear ones; give the two files "
            "of a linear model without --features, and --public records as it reads them"
        )
    if old.shape != target.head.shape:
        raise ExhumeError(
            f"expected an older version of shape {list(target.head.shape)}, found {list(old.shape)}: another model"
        )
    if public.shape[1] != features.d:
        raise UsageError(f"expected public records of d = {features.d} numbers, found {public.shape[1]}")
    found = between_versions(features, old.to(target.head), target.head, public)
    seen = target.observation
    knowledge = Knowledge(norm=seen.knowledge.norm, initial="zero")
    observation = Observation(found.features, found.weights, knowledge, seen.image_shape)
    why = (
        "The change between the versions: with the second moments of public records it becomes a combination of the "
        "features of the records that were deleted or added."
    )
    layers = tuple(LayerFact(fact.name, fact.kind, fact.parameters, why, place=fact.place) for fact in target.layers)
    return replace(target, observation=observation, layers=layers, notes=(*notes_of(found, len(public)), *target.notes))


def notes_of(found: TwoVersions, public: int) -> tuple[str, ...]:
    many = found.dimensions
    if many < found.outputs:
        count = "one record was" if many == 1 else f"{many} records (or more, alike) were"
        counted = f"The change between the versions has {many} of {found.outputs} possible dimensions: {count} changed."
    else:
        counted = (
            f"The change has all {many} dimensions that {many} outputs can show: how many records changed is open."
        )
    return (
        f"Two versions of a ridge model. {counted}",
        f"What an attacker needs: both versions, the feature map, and records of the same kind ({public:,} public ones "
        f"here, {found.features.p:,} dimensions of their features). The penalty is not told: by likelihood it is "
        f"{found.penalty:.2g} per record. Public records that are unlike the training records make the result wrong.",
    )
