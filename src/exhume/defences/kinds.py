"""What an owner may do to a trained head before publishing it.

A defence has a short name, and several are applied from left to right:

    fp16, bf16, int8, int8-row    round the weights (int8-row: one scale for each output)
    prune50                       remove 50 % of the features, those with the smallest weights; the others stay
    obs50                         remove 50 % by Optimal Brain Surgeon, which corrects the others (`surgeon.py`)
    noise0.01                     add Gaussian noise of 1 % of the weights' root mean square
    prune50+int8                  both

Early stopping and ridge are choices of the training itself; training with differential privacy is in `private.py`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, get_args

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from exhume import seeds
from exhume.defences.publication import Publication
from exhume.defences.quantisation import Format, quantise
from exhume.defences.surgeon import operate
from exhume.errors import UsageError
from exhume.observation import Observation
from exhume.validation import parse_fields

EXAMPLES = "fp16, bf16, int8, int8-row, prune50, obs50 or noise0.01"
_WRITTEN = re.compile(r"(?P<name>[a-z]+)(?P<number>\d+(\.\d+)?(e-?\d+)?)")


class Defence(BaseModel, ABC):
    """Settings of one defence, and what becomes of weights that are published with it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    percent_removed: ClassVar[float | None] = None
    """Of the features; None for a defence that removes none."""
    needs_trained_features: ClassVar[bool] = False
    offered: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names that a page offers, each with what it does; none of a defence that needs more than the weights."""

    @classmethod
    @abstractmethod
    def read(cls, text: str, *, ridge: float, seed: int) -> "Defence | None":
        """The defence of that short name; None if it is that of another kind."""

    @property
    @abstractmethod
    def short(self) -> str:
        """The name under which `parse_defences` finds the same defence again."""

    @abstractmethod
    def publish(self, owned: Publication) -> Publication:
        """The head."""

    def elsewhere(self, rows: Float[Tensor, "h d"], matrix: bool, stream: torch.Generator) -> Float[Tensor, "h d"]:
        """The weights of another layer, or its bias as one row. `stream` gives the noise."""
        return rows


class Rounding(Defence):
    """Weights in a shorter format."""

    offered = MappingProxyType({"int8": "Round the weights to 8 bits"})

    kind: Format

    @classmethod
    def read(cls, text: str, *, ridge: float, seed: int) -> "Rounding | None":
        return parse_fields(cls, kind=text) if text in get_args(Format) else None

    @property
    def short(self) -> str:
        return self.kind

    def publish(self, owned: Publication) -> Publication:
        return owned.with_head(quantise(owned.head, self.kind))

    def elsewhere(self, rows: Float[Tensor, "h d"], matrix: bool, stream: torch.Generator) -> Float[Tensor, "h d"]:
        """16 bits change every number; int8 changes matrices, and biases stay."""
        return quantise(rows, self.kind) if matrix or self.kind in ("fp16", "bf16") else rows


class Pruning(Defence):
    """Removes features of the head. Of other layers it removes units, not numbers: `auditing/pruned_layers.py`."""

    percent: float = Field(ge=0, lt=100)

    @property
    def percent_removed(self) -> float:  # type: ignore[override]
        return self.percent


class MagnitudePruning(Pruning):
    """Those with the smallest weights (k outputs: the smallest norm of k weights)."""

    offered = MappingProxyType({"prune50": "Remove the half of the features with the smallest weights"})

    @classmethod
    def read(cls, text: str, *, ridge: float, seed: int) -> "MagnitudePruning | None":
        percent = _number(text, "prune")
        return None if percent is None else parse_fields(cls, percent=percent)

    @property
    def short(self) -> str:
        return f"prune{self.percent:g}"

    def publish(self, owned: Publication) -> Publication:
        head = owned.head
        order = torch.argsort(head.double().square().sum(dim=0), stable=True)
        kept = order[removed(self.percent, len(order)) :].sort().values
        return owned.keeping(kept, head[:, kept])


class SurgeonPruning(Pruning):
    """Optimal Brain Surgeon. `ridge` is the λ of a ridge fit, whose penalty is part of the Hessian."""

    needs_trained_features: ClassVar[bool] = True
    ridge: float = Field(default=0.0, ge=0)

    @classmethod
    def read(cls, text: str, *, ridge: float, seed: int) -> "SurgeonPruning | None":
        percent = _number(text, "obs")
        return None if percent is None else parse_fields(cls, percent=percent, ridge=ridge)

    @property
    def short(self) -> str:
        return f"obs{self.percent:g}"

    def publish(self, owned: Publication) -> Publication:
        """Keeps the n × p features of the training data in memory, in float64."""
        if owned.inputs is None:
            raise UsageError(f"expected the training inputs for {self.short}, found none; only the owner can prune so")
        check_surgeon((self,), bool(owned.observation.knowledge.initial_body))
        features = owned.observation.features
        done = operate(
            features(owned.inputs), owned.head, removed(self.percent, features.p), self.ridge * len(owned.inputs)
        )
        return owned.keeping(done.kept, done.weights)


class Noise(Defence):
    """Gaussian noise on the published weights, of a standard deviation relative to their root mean square."""

    offered = MappingProxyType({"noise0.1": "Add noise of a tenth of the weights' root mean square"})

    relative: float = Field(ge=0)
    seed: int = Field(default=0, ge=0, lt=2**63)

    @classmethod
    def read(cls, text: str, *, ridge: float, seed: int) -> "Noise | None":
        relative = _number(text, "noise")
        return None if relative is None else parse_fields(cls, relative=relative, seed=seed)

    @property
    def short(self) -> str:
        return f"noise{self.relative:g}"

    def publish(self, owned: Publication) -> Publication:
        return owned.with_head(self.elsewhere(owned.head, True, seeds.generator(self.seed, "noise")))

    def elsewhere(self, rows: Float[Tensor, "h d"], matrix: bool, stream: torch.Generator) -> Float[Tensor, "h d"]:
        noise = torch.randn(rows.shape, generator=stream, dtype=torch.float64).to(rows.device)
        size = self.relative * rows.double().square().mean().sqrt()
        return (rows.double() + size * noise).to(rows.dtype)


KINDS: tuple[type[Defence], ...] = (Rounding, MagnitudePruning, SurgeonPruning, Noise)


def parse_defences(text: str, *, ridge: float = 0.0, seed: int = 0) -> tuple[Defence, ...]:
    """The defences that a text such as "prune50+int8" names; "" and "none" name none.

    `ridge` is the λ that the victim was trained with, if any, and `seed` is that of the noise.

    >>> [defence.short for defence in parse_defences("obs50+int8")]
    ['obs50', 'int8']
    """
    if text.strip() in ("", "none"):
        return ()
    return tuple(_parse(part.strip(), ridge, seed) for part in text.split("+"))


def check_surgeon(defences: tuple[Defence, ...], halfway: bool) -> None:
    """The Hessian of the head is made of its inputs as they are after training, which features halfway are not."""
    for defence in defences:
        if halfway and defence.needs_trained_features:
            raise UsageError(
                f"expected features at the trained weights for {defence.short}, found them halfway; "
                f"take --features-at trained, or prune{defence.percent_removed or 0:g}"
            )


def _parse(text: str, ridge: float, seed: int) -> Defence:
    for kind in KINDS:
        found = kind.read(text, ridge=ridge, seed=seed)
        if found is not None:
            return found
    raise UsageError(f"expected a defence such as {EXAMPLES}, joined by commas; found {text!r}")


def _number(text: str, name: str) -> float | None:
    """
    >>> _number("prune50", "prune"), _number("prune50", "obs"), _number("prune", "prune")
    (50.0, None, None)
    """
    written = _WRITTEN.fullmatch(text)
    return float(written["number"]) if written and written["name"] == name else None


def publish(
    observation: Observation,
    defences: tuple[Defence, ...],
    *,
    inputs: Float[Tensor, "n d"] | None = None,
    initial: Float[Tensor, "k p"] | None = None,
) -> Observation:
    """What an attacker sees of a head that was published with these defences, one after the other.

    `inputs` are the owner's training data, which Optimal Brain Surgeon needs. `initial` is the head before training
    where the observation's weights are the change from it: defences act on initial + weights.
    """
    owned = Publication(observation, inputs, initial)
    for defence in defences:
        owned = defence.publish(owned)
    return owned.observation


def elsewhere(weights: Tensor, defences: tuple[Defence, ...], stream: torch.Generator) -> Tensor:
    """What these defences make of the weights or the bias of another layer of the same model.

    >>> elsewhere(torch.tensor([[1.27, 0.012]]), parse_defences("int8"), torch.Generator())
    tensor([[1.2700, 0.0100]])
    """
    rows = weights.flatten(start_dim=1) if weights.ndim > 1 else weights.reshape(1, -1)
    for defence in defences:
        rows = defence.elsewhere(rows, weights.ndim > 1, stream)
    return rows.reshape(weights.shape)


def removed(percent: float, p: int) -> int:
    """How many of p weights go; one always stays."""
    return min(int(p * percent / 100 + 1e-9), p - 1)
