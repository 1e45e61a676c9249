"""Which ways of training these attacks can judge, and where this model stands.

Attacks look for the head's change in the span of the features of single samples. Gradient descent keeps it there,
whatever the order and the size of batches; what divides each weight's step by its own history (Adam), shows each sample
in a new form every time (augmentation), or adds noise does not. Features that moved far in training put the change
outside of the span of the features that are left. Where the training data are at hand this is no matter of belief: the
share of the change that they leave out is measured.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from exhume.attacks.registry import method_names, methods_called
from exhume.errors import UsageError
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction
from exhume.report.numbers import plain
from exhume.verdicts import OUTSIDE

Judged = Literal["yes", "partly", "no"]
DRIFTED = 0.3
"""Relative movement of the features in training from which on a reader is warned."""


@dataclass(frozen=True)
class TrainingRecipe:
    name: str
    title: str
    judged: Judged
    why: str


STATIONARY = "stationary"
"""The recipe by which the weights themselves are attacked, and not their change."""
AT_REST = frozenset({"adam", "weight-decay"})
"""What matters no more once the weights rest: they do not show how they came there."""

RECIPES = (
    TrainingRecipe("gd", "Gradient descent, or a closed-form fit (min-norm, ridge)", "yes", "Stays in the span."),
    TrainingRecipe("sgd", "SGD, any batches", "yes", "Every step is a combination of samples' features."),
    TrainingRecipe("momentum", "Momentum", "partly", "In the span; large steps move the features further."),
    TrainingRecipe(
        "weight-decay", "Weight decay", "partly", "Shrinks the start as well: exact only for a head that began at zero."
    ),
    TrainingRecipe(
        "adam",
        "Adam, AdamW, RMSprop",
        "no",
        "Each weight has a step of its own: out of the span. Whoever knows the start and the recipe can replay it, and "
        "weights that L2 brought to rest are attacked themselves.",
    ),
    TrainingRecipe(
        STATIONARY,
        "L2 in the loss until the weights rest (any optimiser)",
        "yes",
        "Weights at rest are sums over samples themselves, whatever led there. AdamW's decay is not in the loss.",
    ),
    TrainingRecipe("augmentation", "Data augmentation", "no", "Each epoch saw other inputs: no single one is there."),
    TrainingRecipe("dropout", "Dropout before the head", "no", "Each step saw other features of the same sample."),
    TrainingRecipe("dp-sgd", "DP-SGD", "no", "Adds noise in all directions: that is its point."),
)
NAMES = tuple(recipe.name for recipe in RECIPES)


def check_recipes(named: Collection[str]) -> tuple[str, ...]:
    strangers = [name for name in named if name not in NAMES]
    if strangers:
        raise UsageError(f"expected ways of training out of {', '.join(NAMES)}, found {strangers[0]!r}")
    return tuple(name for name in NAMES if name in named)


@dataclass(frozen=True)
class Drift:
    """How far features moved in training, over their size, and the features of what."""

    moved: float
    of: str
    sure: bool
    """Whether these are the inputs that count: of random ones it cannot be said that it is little."""


def recipes_section(
    named: Collection[str], floor: float | None, drift: Drift | None, zero: bool, breaking: Collection[str]
) -> dict[str, Any]:
    """`named` is how the owner says the model was trained; `zero`: its head started at zero; `breaking`: what breaks
    the assumption of the attack that the verdict is about."""
    measured: list[str] = []
    fine = (AT_REST if STATIONARY in named else frozenset()) | ({"weight-decay"} if zero else frozenset())
    if floor is not None:
        holds = "does not hold for these records" if floor > OUTSIDE else "holds"
        measured.append(
            f"Measured with the training records: a share of {plain(floor)} of the head's weights lies outside of "
            f"the span of their features. The assumption {holds}."
        )
    if drift is not None:
        measured.append(_moved(drift))
    return {
        "lines": [
            {
                "name": recipe.name,
                "title": recipe.title,
                "judged": "yes" if recipe.name in fine else recipe.judged,
                "why": recipe.why,
                "told": recipe.name in named,
            }
            for recipe in RECIPES
        ],
        "told": bool(named),
        "measured": measured,
        "broken": broken(named, breaking),
    }


def unrest(layer: str, share: float) -> str:
    """What keeps weights that are said to rest from being sums over these records, as measured."""
    return (
        f"Of the weights of layer {layer!r} themselves, a share of {plain(share)} lies outside of the span of these "
        "records: that much is not at rest."
    )


def _moved(drift: Drift) -> str:
    features = f"The features of {drift.of}"
    if not drift.moved:
        return f"{features} are what they were at the known start."
    far = ": far. Candidates of an attack on the last layer are then only nearly right" if drift.moved > DRIFTED else ""
    little = ": little" if drift.sure and not far else ""
    return f"{features} moved by {plain(drift.moved)} of their size since the known start{far or little}."


def broken(named: Collection[str], breaking: Collection[str]) -> list[str]:
    """What of the training that the owner tells breaks the assumption of an attack, in words for the verdict.

    >>> broken(["adam", "weight-decay"], {"adam"}), broken(["sgd"], {"adam"})
    (['Adam, AdamW, RMSprop'], [])
    """
    breaking = set(breaking) - (AT_REST if STATIONARY in named else set())
    return [
        "weight decay from a start that is not zero" if recipe.name == "weight-decay" else recipe.title
        for recipe in RECIPES
        if recipe.name in named and recipe.name in breaking
    ]


def assumed_by(found: Reconstruction | None, observation: Observation) -> tuple[frozenset[str], bool]:
    """What breaks the assumption of the attack that found this, and whether it is one on features; nothing where no
    attack ran, or one that is not known here."""
    if found is None or found.method not in method_names():
        return frozenset(), True
    method = methods_called(found.method)[0]
    return method.broken_by(observation), method.through_features
