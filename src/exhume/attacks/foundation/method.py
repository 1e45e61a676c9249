"""What a method of attack is: a frozen dataclass of hyperparameters that says everything about itself.

To add one, subclass `Method` (or `RidgeMethod`, `ModuleMethod` for the features that exist), and name it in
`registry.py` or by an entry point. The command line, audits, `exhume compare` and the documentation read from here what
it is called, what it needs, which options it has and how it opens its case.

`steps` is a generator: it yields its iterates, best last, and each carries all that is needed to go on from it. The
loop around it (`running/loop.py`) keeps the trace, the clock, the checkpoints and the certificate, so a method holds
mathematics only.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.hyperparameters import Hyperparameter, OptionValue, hyperparameters_of
from exhume.attacks.foundation.judgement import AttackProblem, Case, Resources
from exhume.attacks.foundation.outline import Outline
from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.foundation.state import State, Step
from exhume.errors import UsageError
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction

P = TypeVar("P", bound=AttackProblem)
OF_ANOTHER_SPAN = frozenset({"adam", "augmentation", "dropout", "dp-sgd"})
"""Ways of training after which the head's change is no combination of the features of single samples; weight decay
leaves a multiple of the start beside it, if there is one."""


class Method(ABC, Generic[P]):
    name: ClassVar[str]
    """That of `--method`."""
    composition: ClassVar[Composition]
    """Its line of the family's table."""
    needs: ClassVar[str]
    """One sentence on what it needs, for readers of an audit that did not make it."""
    page: ClassVar[str] = "choosing-an-attack.md"
    """Where in docs/ it is explained."""
    attacked: ClassVar[str | None] = None
    """The kind of features that it is for (`Outline.kind`); None: any."""
    auto_place: ClassVar[int | None] = None
    """Its place in the order in which `--method auto` asks methods whether an observation is theirs; None: never."""
    audit_place: ClassVar[int | None] = None
    """Its place in an audit, from cheap to dear; None: not part of it."""
    shares_rows: ClassVar[bool] = False
    """Whether all its sums over rows are sums over ranks, so that several processes can share it."""
    coarse_products: ClassVar[bool] = False
    """Whether it can search with products in bfloat16."""
    lowers: ClassVar[bool] = False
    """Whether it can search in the coordinates of a subspace instead of the whole space."""
    own_subspaces: ClassVar[tuple[str, ...]] = ()
    """Sources of a subspace that it makes use of by itself."""
    takes_starts: ClassVar[bool] = False
    """Whether it goes on from candidates that were found elsewhere (`Problem.start`)."""
    through_features: ClassVar[bool] = True
    """Whether it takes the head's weights for a combination of the features at one moment. If so, what the features of
    the true records leave unexplained of them is a limit of this attack."""
    takes_known: ClassVar[bool] = False
    """Whether it makes use of training samples that are known (`Observation.known`)."""
    stands_for: ClassVar[Mapping[str, str]] = {}
    """The settings that its name is short for, if it is a way to run other methods."""

    def __post_init__(self) -> None:
        if self.iterations is not None and self.iterations < 1:
            raise UsageError(f"expected at least 1 iteration, found {self.iterations}")

    # --- what it can do

    @classmethod
    def refusal(cls, outline: Outline) -> str | None:
        """Why it cannot be made on such an observation, in one line; None where it can."""
        if cls.attacked is None or cls.attacked == outline.kind:
            return None
        return (
            f"expected a method for {outline.kind}, found {cls.name}, which is for {cls.attacked}; leave --method out"
        )

    @classmethod
    def first_choice(cls, outline: Outline) -> bool:
        """Whether "auto" is to take it, asked in the order of `auto_place`."""
        return cls.refusal(outline) is None

    @classmethod
    def view(cls, observation: Observation) -> Observation:
        """The observation as this method looks at it."""
        return observation

    @classmethod
    def offers(cls, observation: Observation, samples: int | None, seed: int) -> tuple[PlannedAttack, ...]:
        """The attacks that an audit makes with it. `samples` is n where the owner knows it."""
        return () if cls.refusal(Outline.of(observation)) else (PlannedAttack(cls.name, cls.needs, seed),)

    @classmethod
    def place(cls, observation: Observation) -> int | None:
        """Its place in an audit of this observation."""
        return cls.audit_place

    @classmethod
    def broken_by(cls, observation: Observation) -> frozenset[str]:
        """Ways of training (names of `--recipe`) that do not leave the weights as it takes them to be."""
        return OF_ANOTHER_SPAN if observation.knowledge.initial == "zero" else OF_ANOTHER_SPAN | {"weight-decay"}

    @classmethod
    def why_not(cls, observation: Observation, no_silence: str | None) -> str:
        """One sentence on why an audit does not make it. `no_silence`: what keeps attacks from each of the layers."""
        return cls.needs

    # --- its hyperparameters

    @classmethod
    def hyperparameters(cls) -> Mapping[str, Hyperparameter]:
        """By the name of their option."""
        return hyperparameters_of(cls)

    @classmethod
    def build(cls, options: Mapping[str, OptionValue]) -> "Method[P]":
        """The method with some of its hyperparameters, which are checked to be its own."""
        known = cls.hyperparameters()
        for name in options:
            if name not in known:
                raise UsageError(f"expected hyperparameters of {cls.name} ({', '.join(known)}), found {name!r}")
        return cls(**{known[name].field: known[name].parse(value) for name, value in options.items()})

    @property
    @abstractmethod
    def iterations(self) -> int | None:
        """At most so many; None: it ends by itself, or by a limit of time."""

    @property
    def few_rows(self) -> bool:
        """Whether a part of the rows will do where V does not fit into memory as a whole."""
        return False

    @property
    def needs_samples(self) -> bool:
        """Whether the number of samples has to be given; otherwise it is found."""
        return False

    def as_start(self) -> "Method[P]":
        """The same method where only a start for another stage is wanted."""
        return self

    # --- the attack

    @abstractmethod
    def least_bytes(self, observation: Observation, dtype: torch.dtype, ranks: Ranks) -> int:
        """The smallest budget of memory that it can keep to."""

    @abstractmethod
    def open_case(self, observation: Observation, seed: int, held_out: float, resources: Resources) -> Case[P]:
        """What `steps` works on, and the verdict on what it finds; refuses in one line what it cannot be made on."""

    @abstractmethod
    def steps(self, problem: P, resume: State | None = None) -> Iterator[Step]: ...

    def finish(self, problem: P, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "few c"]:
        """The candidates of a run that was stopped, made fit to be shown."""
        return candidates

    def completed(self, found: Reconstruction, observation: Observation) -> Reconstruction:
        """What was found, made more of by what is known besides; never less certain."""
        return found


AnyMethod = Method[Any]
"""A method of whatever problems."""
