"""What a page is about, whoever attacked it: a run folder, or a user's own model that was audited."""

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from exhume.attacks.running.snapshots import Snapshot
from exhume.experiments.truth import Truth
from exhume.features.module import ModuleFeatures
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction


@dataclass(frozen=True)
class Artefact:
    """The file with the weights, and what is known of how they came about."""

    file: str
    sha256: str
    size: int | None
    kind: str = "observation"
    data: str | None = None
    training_loss: float | None = None
    training_seed: int | None = None
    training_versions: dict[str, str] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Subject:
    """Everything that a page is made of, and so too much to print. Lists of dictionaries go to the page as they are.

    `found` is the result that counts, None where no attack could be run. `control` are rows of the same kind that were
    not trained on. `scores` are those that an evaluation has left. `floor` is the loss of the true records.
    """

    name: str
    artefact: Artefact
    observation: Observation
    found: Reconstruction | None
    finished: str
    commands: list[str]
    stopped: bool = False
    trace: list[dict[str, float]] = field(default_factory=list)
    snapshots: tuple[Snapshot, ...] = ()
    truth: Truth | None = None
    control: Float[Tensor, "c d"] | None = None
    samples: int | None = None
    """n as the owner tells it."""
    starts: int = 1
    """How many attacks of the kind that counts ended like it, each from a start of its own."""
    scores: dict[str, Any] = field(default_factory=dict)
    defences: list[str] | None = None
    layers: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """What was run: method, told, why, seed, outcome (None: failed), note, and the numbers."""
    passed_over: list[dict[str, Any]] = field(default_factory=list)
    """What was not run, and why."""
    stronger: list[str] = field(default_factory=list)
    """What the owner could have given that would have made it stronger."""
    recipes: dict[str, Any] | None = None
    what_if: list[dict[str, Any]] = field(default_factory=list)
    floor: float | None = None

    @property
    def of_versions(self) -> bool:
        """Whether the weights are the change between two versions, as public records weigh it."""
        features = self.observation.features
        return isinstance(features, ModuleFeatures) and features.kin is not None


def attempt_line(found: Reconstruction, why: str, stopped: bool) -> dict[str, Any]:
    """One attack that was run, as the page lists it."""
    notes = (found.facts.get("subspace"), found.facts.get("failure"), "stopped before its end" * stopped)
    return {
        "method": found.method,
        "told": found.settings.get("samples"),
        "why": why,
        "seed": found.seed,
        "outcome": found.outcome.value.replace("_", " "),
        "note": "; ".join(note for note in notes if note),
        "layers": list(found.layers_read),
        "state": found.facts.get("target"),
        "rank": found.facts.get("rank"),
        "trusted": found.trusted,
        "candidates": len(found.candidates),
        "loss": found.loss,
        "held_out_loss": found.held_out_loss,
        "iterations": found.iterations,
        "passes": found.passes,
        "seconds": round(found.seconds, 2),
    }
