"""How a head was drawn before training, up to the seed: what somebody knows who has the code, but not the seed."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume import seeds
from exhume.errors import UsageError

Kind = Literal["normal", "network"]


@dataclass(frozen=True, eq=False, repr=False)
class StartRule:
    """A head of `outputs` × `width` numbers.

    "normal": N(0, 1 / width), by `normal_head`. "network": the head of the network that the
    features' own source builds, drawn with all the rest of it. `kept` are the columns that are left after pruning.
    """

    kind: Kind
    outputs: int
    width: int
    kept: Int[Tensor, " p"] | None = None

    def keeping(self, kept: Int[Tensor, " q"]) -> "StartRule":
        """The rule for some of the columns that are left."""
        return replace(self, kept=kept if self.kept is None else self.kept[kept])

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "outputs": self.outputs, "width": self.width}

    @classmethod
    def restore(cls, described: Any, kept: Tensor | None) -> "StartRule":
        """The twin of `describe`. Raises KeyError, TypeError or UsageError for what makes no sense."""
        kind, outputs, width = described["kind"], described["outputs"], described["width"]
        if kind not in get_args(Kind) or not all(type(size) is int and 0 < size < 2**31 for size in (outputs, width)):
            raise UsageError(f"expected how the initial head was drawn, found {described}")
        if kept is not None:
            counted = kept.ndim == 1 and kept.dtype == torch.int64 and len(kept) > 0
            if not counted or not 0 <= int(kept.min()) <= int(kept.max()) < width:
                raise UsageError(f"expected numbers of columns below {width} of the initial head, found others")
        return cls(kind, outputs, width, kept)


def normal_head(outputs: int, width: int, seed: int) -> Float[Tensor, "k h"]:
    """A head with entries N(0, 1 / width), in float32."""
    return torch.randn(outputs, width, generator=seeds.generator(seed, "network")) / math.sqrt(width)
