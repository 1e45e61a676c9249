"""The feature map φ(Vx + b): random features, and the hidden layer of a two-layer network.

Everything an attack needs of it are two sweeps over the rows of V, each in row blocks:

- *forward*: Z = X Vᵀ + b (m × p), block by block, so that sums over the rows can be taken on the way;
- *pull back*: W V (m × d) for an m × p matrix W that is also made block by block.

Both cost 2 m p d operations and read V once: this is a *pass*, the unit in which attacks are compared.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.activations import Activation
from exhume.features import memory
from exhume.features.rows import Rows, blocks
from exhume.features.selected_rows import selected
from exhume.raw_bytes import raw_bytes


@dataclass(frozen=True, eq=False, repr=False)
class RidgeFeatures:
    """φ(Vx + b) with V kept anywhere; p features of inputs in R^d.

    `trained`: V was trained together with the weights over it. They are then combinations of features that moved on the
    way, which V shows at one moment only; of rows that stood still they are combinations but for rounding.
    """

    rows: Rows
    activation: Activation
    bias: Float[Tensor, " p"] | None = None
    trained: bool = False

    is_network: ClassVar[bool] = False
    source: ClassVar[None] = None
    """No network has to be built for them."""
    networks: ClassVar[tuple[()]] = ()
    constant: ClassVar[bool] = False
    dtype: ClassVar[None] = None
    """They are computed in that of the inputs."""
    note: ClassVar[None] = None

    @property
    def linear(self) -> bool:
        return self.activation.linear

    @property
    def p(self) -> int:
        return self.rows.p

    @property
    def d(self) -> int:
        return self.rows.d

    @property
    def chosen(self) -> Int[Tensor, " p"] | None:
        """Which features of an unpruned model these are; None: all."""
        return self.rows.chosen

    @property
    def norm_blind(self) -> bool:
        """Whether weights cannot tell the norm of a sample from its coefficient: φ is homogeneous, without bias."""
        return self.activation.homogeneous and self.bias is None

    def form(self, matrix: str = "V") -> str:
        return f"{self.activation.name}({matrix}x{'' if self.bias is None else ' + b'})"

    @property
    def sign_blind(self) -> bool:
        """Whether weights cannot tell the sign of a sample, or only all signs together."""
        return self.bias is None and (self.activation.parity != "none" or self.activation.linear_plus_even)

    @property
    def description(self) -> str:
        return f"{self.form()}, V of {self.p:,} x {self.d:,} numbers"

    def telltale(self, like: Tensor) -> Iterator[bytes]:
        """What tells these features from others: the activation, all rows, the bias."""
        yield self.activation.name.encode()
        yield self.rows.telltale()
        if self.bias is not None:
            yield raw_bytes(self.bias)

    def part(self, start: int, stop: int) -> "RidgeFeatures":
        """The features start..stop-1: each row is an equation of its own, so any part is a smaller problem."""
        bias = None if self.bias is None else self.bias[start:stop]
        return replace(self, rows=self.rows.part(start, stop), bias=bias)

    def keeping(self, kept: Int[Tensor, " kept"]) -> "RidgeFeatures":
        """What is left of them after pruning."""
        bias = None if self.bias is None else self.bias[kept]
        return replace(self, rows=selected(self.rows, kept), bias=bias)

    def preactivation_blocks(
        self, inputs: Float[Tensor, "m d"], out: Float[Tensor, "m p"] | None = None
    ) -> Iterator[tuple[slice, Float[Tensor, "m rows"]]]:
        """Blocks of Z = X Vᵀ + b, in the type and on the device of the inputs; views of `out` if given. One pass."""
        for block in blocks(self.rows):
            preactivations = self._forward(inputs, block, None if out is None else out[:, block])
            if self.bias is not None:
                preactivations += self.bias[block].to(device=inputs.device, dtype=inputs.dtype)
            yield block, preactivations

    def feature_blocks(self, inputs: Float[Tensor, "m d"]) -> Iterator[tuple[slice, Float[Tensor, "m rows"]]]:
        """Blocks of Φ = φ(X Vᵀ + b). One pass."""
        for block, preactivations in self.preactivation_blocks(inputs):
            yield block, self.activation.value(preactivations)

    def __call__(self, inputs: Float[Tensor, "m d"]) -> Float[Tensor, "m p"]:
        """Φ in full: m x p numbers. One pass."""
        features = torch.empty(len(inputs), self.p, dtype=inputs.dtype, device=inputs.device)
        for block, values in self.feature_blocks(inputs):
            features[:, block] = values
        return features

    def products(self, directions: Float[Tensor, "m d"]) -> Float[Tensor, "m p"]:
        """P Vᵀ, without bias or activation: how the preactivations move with the inputs. One pass."""
        moved = memory.empty(len(directions), self.p, directions)
        for block in blocks(self.rows):
            self._forward(directions, block, moved[:, block])
        return moved

    def pull_back(
        self, weigh: Callable[[slice], Float[Tensor, "m rows"]], m: int, dtype: torch.dtype, device: torch.device
    ) -> Float[Tensor, "m d"]:
        """W V, with W's block of columns made by `weigh`. One pass."""
        total = torch.zeros(m, self.d, dtype=dtype, device=device)
        for block in blocks(self.rows):
            rows = self._rows(block, total)
            if rows.dtype == dtype:
                total.addmm_(weigh(block), rows)
            else:
                total += self._product(weigh(block), rows)
        return total

    def _forward(
        self, inputs: Float[Tensor, "m d"], block: slice, out: Float[Tensor, "m rows"] | None
    ) -> Float[Tensor, "m rows"]:
        """X V_bᵀ, written where it will stay: a copy of it would cost a tenth of the pass."""
        rows = self._rows(block, inputs)
        if out is None:
            return self._product(inputs, rows.T)
        if rows.dtype == inputs.dtype:
            return torch.mm(inputs, rows.T, out=out)
        return out.copy_(self._product(inputs, rows.T))

    def _rows(self, block: slice, like: Tensor) -> Float[Tensor, "rows d"]:
        """Rows of V where `like` is and in its precision; coarse ones stay in theirs."""
        rows = self.rows.block(block.start, block.stop)
        return rows.to(device=like.device, dtype=rows.dtype if self.rows.coarse else like.dtype)

    @staticmethod
    def _product(left: Float[Tensor, "a b"], right: Float[Tensor, "b c"]) -> Float[Tensor, "a c"]:
        """A product in the precision of V, handed on in that of the inputs."""
        return (left.to(right.dtype) @ right).to(left.dtype)
