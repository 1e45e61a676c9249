"""The family of attacks as one formulation: is the target in the span of g(x̂_1), …, g(x̂_m)?

Each attack is a choice of a feature map g, a target, a rule for the coefficients, a parametrisation of the candidates
and a solver. Every method has its own line of this table (`composition`); the documentation and `exhume compare` read
it here.
"""

from dataclasses import astuple, dataclass

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.registry import known_methods

HEAD = ("attack", "g(x)", "target", "coefficients", "candidates", "solver", "knowledge", "published")
EQUATIONS = ("attack", "g(x)", "target", "coefficients", "published")
SEARCH = ("attack", "candidates", "solver", "knowledge")


@dataclass(frozen=True)
class FamilyMember:
    """A method of attack by the name that `--method` takes."""

    name: str
    composition: Composition


def family() -> tuple[FamilyMember, ...]:
    """Every attack once, in the order of the registry."""
    methods = {method.name: method for method in reversed(known_methods())}
    return tuple(FamilyMember(name, method.composition) for name, method in reversed(methods.items()))


def as_markdown() -> str:
    """The tables of the documentation: what is solved, and how.

    >>> print(as_markdown().splitlines()[0])
    | attack | g(x) | target | coefficients | published |
    """
    members = [
        (f"`{asked or member.name}`", *cells) for member in family() for *cells, asked in [astuple(member.composition)]
    ]
    tables = []
    for columns in (EQUATIONS, SEARCH):
        places = [HEAD.index(name) for name in columns]
        lines = [columns, ("---",) * len(columns), *([cells[place] for place in places] for cells in members)]
        tables.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(tables)
