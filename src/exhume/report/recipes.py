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

from exhume.errors import UsageError
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
        "Each weight has a step of its own: out of the span. Whoever knows the start and the recipe can replay it.",
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


def recipes_section(named: Collection[str], floor: float | None, drift: float | None, zero: bool) -> dict[str, Any]:
    """`told` is how the owner says the model was trained; `zero`: its head started at zero."""
    measured = []
    if floor is not None:
        holds = "does not hold for these records" if floor > OUTSIDE else "holds"
        measured.append(
            f"Measured with the training records: a share of {plain(floor)} of the head's weights lies outside of "
            f"the span of their features. The assumption {holds}."
        )
    if drift is not None:
        far = (
            "far. Candidates of an attack on the last layer are then only nearly right" if drift > DRIFTED else "little"
        )
        moved = f"moved by {plain(drift)} of their size in training: {far}" if drift else "did not move in training"
        measured.append(f"The features {moved}.")
    return {
        "lines": [
            {
                "name": recipe.name,
                "title": recipe.title,
                "judged": "yes" if recipe.name == "weight-decay" and zero else recipe.judged,
                "why": recipe.why,
                "told": recipe.name in named,
            }
            for recipe in RECIPES
        ],
        "told": bool(named),
        "measured": measured,
        "broken": broken(named, zero),
    }


def broken(named: Collection[str], zero: bool) -> list[str]:
    """What breaks the assumption by what the owner tells, in words for the verdict.

    >>> broken(["adam"], zero=False), broken(["weight-decay"], zero=True)
    (['Adam, AdamW, RMSprop'], [])
    """
    found = [recipe.title for recipe in RECIPES if recipe.name in named and recipe.judged == "no"]
    if "weight-decay" in named and not zero:
        found.append("weight decay from a start that is not zero")
    return found
