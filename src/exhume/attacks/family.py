"""The family of attacks as one formulation: is the target in the span of g(x̂_1), …, g(x̂_m)?

Each attack is a choice of a feature map g, a target, a rule for the coefficients, a parametrisation of the candidates
and a solver. This table is where the documentation and `exhume compare` take them from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Composition:
    """One attack in words. `name` is that of `--method`, or its own where it has `options`; `published` by whom."""

    name: str
    features: str
    target: str
    coefficients: str
    parametrisation: str
    solver: str
    knowledge: str
    published: str
    options: Mapping[str, str] = field(default_factory=dict)
    """What `exhume attack` is to be told to make it, where that is more than its name."""

    @property
    def request(self) -> Mapping[str, str]:
        return {"method": self.name} | dict(self.options)


FAMILY = (
    Composition(
        "split-newton",
        "φ(Vx + b), the last layer's",
        "its weights, or their change",
        "free, eliminated",
        "rows at their norm",
        "split Gauss-Newton with growth and pruning",
        "the last layer, and what is before it",
        "here, on the loss of Iurada et al. 2025",
    ),
    Composition(
        "heavy-ball",
        "φ(Vx + b), the last layer's",
        "its weights, or their change",
        "free, eliminated",
        "rows at their norm",
        "gradient descent with momentum",
        "the last layer, what is before it, and n",
        "Iurada et al. 2025",
    ),
    Composition(
        "subspace",
        "φ(Vx + b), the last layer's",
        "its weights, or their change",
        "free, eliminated",
        "x = U z, U the span of the first layer's change",
        "that of split-newton",
        "the last layer, and the first one before and after training",
        "Tansley et al. 2026",
    ),
    Composition(
        "image-prior",
        "φ(Vx + b), averaged over what is not resolved",
        "its weights, or their change",
        "free, eliminated",
        "frequencies of an image, coarse to fine, with a 1/f prior",
        "Gauss-Newton, from moments of the weights",
        "the last layer, what is before it, and that the samples are images",
        "here",
        {"method": "split-newton", "prior": "image"},
    ),
    Composition(
        "module-newton",
        "what a network's last layer reads",
        "its change",
        "free, eliminated",
        "smooth pictures first",
        "L-BFGS, several starts, pruning",
        "the last layer, and the trained ones before it",
        "here, on the loss of Iurada et al. 2025",
    ),
    Composition(
        "ntk",
        "gradients of f in all weights, halfway through training",
        "the change of all weights",
        "free, eliminated",
        "x = U z as above, smooth pictures first",
        "L-BFGS at growing sharpness, several starts, regrowth",
        "all layers before and after training",
        "Loo et al. 2024",
    ),
    Composition(
        "kkt",
        "gradients of f in the first layer, at the end of training",
        "the first layer itself",
        "free, or of margins and not negative",
        "x = U z, U the span of the first layer",
        "L-BFGS at growing sharpness, several starts, regrowth",
        "all layers after training, which began with a small first one",
        "Haim et al. 2022, Buzaglo et al. 2023",
    ),
    Composition(
        "silent-units",
        "what the units of a dense layer fire on",
        "the change of that layer",
        "zero wherever a unit is silent",
        "x = U z, U the span of the layer's change",
        "edges of pictures or many starts, reweighted least squares, annealing",
        "one dense layer, before and after training",
        "here",
    ),
    Composition(
        "informed",
        "φ(Vx + b), the last layer's",
        "what the known samples leave of the weights",
        "closed form, or known features projected out",
        "one row",
        "closed form, Gauss-Newton",
        "the last layer, and all samples but one",
        "Balle et al. 2022",
    ),
)


def composition(name: str) -> Composition | None:
    """The entry of that name; None for methods that have none."""
    return next((entry for entry in FAMILY if entry.name == name), None)


def as_markdown() -> str:
    """The table of the documentation.

    >>> print(as_markdown().splitlines()[0])
    | attack | g(x) | target | coefficients | candidates | solver | knowledge | published |
    """
    head = ("attack", "g(x)", "target", "coefficients", "candidates", "solver", "knowledge", "published")
    lines = [head, ("---",) * len(head)]
    lines += [
        (
            f"`{entry.name}`" if not entry.options else "`--prior image`",
            entry.features,
            entry.target,
            entry.coefficients,
            entry.parametrisation,
            entry.solver,
            entry.knowledge,
            entry.published,
        )
        for entry in FAMILY
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
