"""What is known of a module before training: all of it, or some of its layers.

A file may hold the start of the head alone, or of everything but a head that was drawn anew. Layers that it does not
name are not taken to have stood still: nothing is known of where they came from.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.networks.loading import load_state, with_statistics_of


@dataclass(frozen=True, eq=False)
class KnownStart:
    """`module` has the weights before training; its parameters in `unknown` are those after it."""

    module: nn.Module
    unknown: frozenset[str]

    @classmethod
    def of(cls, trained: nn.Module, state: Mapping[str, Tensor]) -> "KnownStart":
        """Layers count whole: a weight without its bias is refused."""
        unknown = frozenset(name for name, _ in trained.named_parameters() if name not in state)
        if not any(name in state for name, _ in trained.named_parameters()):
            unknown = frozenset()  # nothing fits, and the reader of weights says so
        halves = sorted(
            name
            for name in unknown
            if any(
                other not in unknown and _layer_of(other) == _layer_of(name) for other, _ in trained.named_parameters()
            )
        )
        if halves:
            raise UsageError(
                f"expected whole layers in the initial weights, found no {halves[0]} beside its other half"
            )
        module = copy.deepcopy(trained)
        absent = unknown | ({name for name, _ in trained.named_buffers()} if unknown else set())
        load_state(module, with_statistics_of(trained.state_dict(), state), "the initial weights", without=absent)
        return cls(module, unknown)

    @property
    def whole(self) -> bool:
        return not self.unknown

    def knows(self, layer: str) -> bool:
        """Whether this layer, or all below this name, is known."""
        return not any(name.startswith(f"{layer}." if layer else "") for name in self.unknown)

    def stands_still(self, trained: nn.Module, apart_from: str) -> bool:
        """Whether training changed no parameter but those of one layer."""
        before = dict(self.module.named_parameters())
        return self.knows("") and all(
            torch.equal(value, before[name])
            for name, value in trained.named_parameters()
            if _layer_of(name) != apart_from
        )


def _layer_of(parameter: str) -> str:
    return parameter.rpartition(".")[0]
