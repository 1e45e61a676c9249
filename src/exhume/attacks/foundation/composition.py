"""One attack in words: a feature map, a target, a rule for the coefficients, a parametrisation and a solver."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Composition:
    """A method's line of the family's table. `published`: by whom. `asked`: the option that makes it, where that is not
    `--method` and its name."""

    features: str
    target: str
    coefficients: str
    parametrisation: str
    solver: str
    knowledge: str
    published: str
    asked: str | None = None
