"""A dense ReLU network: its gradient on a batch, and what the gradient changes by when inputs or weights do.

With H₀ = X, A_l = H_{l−1} W_lᵀ + b_l, H_l = φ(A_l) and the outputs A_L, the gradient of the mean loss is

    C_L = ∂loss / ∂A_L,    C_l = R_l φ'(A_l) with R_l = C_{l+1} W_{l+1},    G_l = C_lᵀ H_{l−1},    1ᵀ C_l for the bias.

`push` is the derivative of (G, 1ᵀC) along a direction (dX, dY, dW), `pull` its transpose. Both are written out: through
training they are taken thousands of times, and automatic differentiation of a gradient costs about ten times as much.

*Smoothing.* A gate of width s > 0 has φ'(a) = σ(1.7 a / s), which is close to the chance that a + s ξ > 0 for a normal
ξ: what is to be expected of a unit whose preactivation is known up to s. Width 0 is the ReLU itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.recipe import Loss

PROBIT = 1.7  # the logistic function at 1.7 a is within 0.01 of the normal distribution's


@dataclass(frozen=True)
class Dense:
    """One layer's place among the parameters: the weights are `at`, and the bias after them if there is one."""

    outputs: int
    inputs: int
    bias: bool
    at: int

    @property
    def numbers(self) -> int:
        return self.outputs * (self.inputs + self.bias)

    def split(self, flat: Shaped[Tensor, " p"]) -> tuple[Shaped[Tensor, "o i"], Shaped[Tensor, " o"] | None]:
        """Views of W and b."""
        end = self.at + self.outputs * self.inputs
        weight = flat[self.at : end].view(self.outputs, self.inputs)
        return weight, flat[end : end + self.outputs] if self.bias else None


@dataclass(frozen=True, eq=False, repr=False)
class Pass:
    """One batch through the network and back. `inside`: H₀ … H_{L−1}; `slopes`: φ'(A_l); `bends`: R_l φ''(A_l), None
    for the ReLU itself; `back`: C₁ … C_L; `chances`: the softmax of the outputs, None for the square loss."""

    weights: list[Tensor]
    inside: list[Tensor]
    slopes: list[Tensor]
    bends: list[Tensor | None]
    back: list[Tensor]
    chances: Float[Tensor, "n k"] | None


@dataclass(frozen=True)
class DenseNetwork:
    layers: tuple[Dense, ...]
    loss: Loss

    @property
    def p(self) -> int:
        return sum(layer.numbers for layer in self.layers)

    @property
    def d(self) -> int:
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        return self.layers[-1].outputs

    def parts(self) -> list[slice]:
        """The places of each matrix and each bias."""
        found = []
        for layer in self.layers:
            end = layer.at + layer.outputs * layer.inputs
            found += [slice(layer.at, end), *([slice(end, end + layer.outputs)] if layer.bias else [])]
        return found

    def gradient(
        self,
        flat: Float[Tensor, " p"],
        inputs: Float[Tensor, "n d"],
        targets: Float[Tensor, "n k"],
        widths: Sequence[float],
    ) -> tuple[Float[Tensor, " p"], Pass]:
        """`widths`: of the gates, per hidden layer."""
        parts = [layer.split(flat) for layer in self.layers]
        inside, slopes, curves = [inputs], [], []
        for (weight, bias), width in zip(parts[:-1], widths, strict=True):
            value, slope, curve = _gate(_affine(inside[-1], weight, bias), width)
            inside.append(value)
            slopes.append(slope)
            curves.append(curve)
        error, chances = self._error(_affine(inside[-1], *parts[-1]), targets)
        back = [error]
        bends: list[Tensor | None] = []
        for (weight, _), slope, curve in zip(reversed(parts[1:]), reversed(slopes), reversed(curves), strict=True):
            reached = back[0] @ weight
            back.insert(0, reached * slope)
            bends.insert(0, None if curve is None else reached * curve)
        record = Pass([weight for weight, _ in parts], inside, slopes, bends, back, chances)
        found = torch.empty_like(flat)
        for layer, error, value in zip(self.layers, back, inside, strict=True):
            _store(layer, found, error.mT @ value, error)
        return found, record

    def push(
        self,
        at: Pass,
        inputs: Float[Tensor, "n d"],
        targets: Float[Tensor, "n k"] | None,
        flat: Float[Tensor, " p"] | None,
    ) -> Float[Tensor, " p"]:
        """The change of the gradient for directions in the inputs, the targets (None: fixed) and the weights."""
        moves = [(None, None) if flat is None else layer.split(flat) for layer in self.layers]
        inside, outer = [inputs], []
        for place, (move, shift) in enumerate(moves):
            reached = inside[-1] @ at.weights[place].mT
            if move is not None:
                reached = reached + at.inside[place] @ move.mT
            if shift is not None:
                reached = reached + shift
            outer.append(reached)
            if place < len(at.slopes):
                inside.append(reached * at.slopes[place])
        error = self._turn(at, outer[-1])
        back = [error if targets is None else error - self._weight(len(inputs)) * targets]
        for place in reversed(range(len(at.slopes))):
            reached = back[0] @ at.weights[place + 1]
            move = moves[place + 1][0]
            if move is not None:
                reached = reached + at.back[place + 1] @ move
            reached = reached * at.slopes[place]
            bend = at.bends[place]
            back.insert(0, reached if bend is None else torch.addcmul(reached, bend, outer[place]))
        found = torch.empty(self.p, dtype=inputs.dtype, device=inputs.device)
        for place, layer in enumerate(self.layers):
            change = back[place].mT @ at.inside[place] + at.back[place].mT @ inside[place]
            _store(layer, found, change, back[place])
        return found

    def pull(
        self, at: Pass, cotangent: Float[Tensor, " p"], weights: bool
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n k"], Float[Tensor, " p"] | None]:
        """The transpose of `push`: what a cotangent of the gradient is for inputs, targets and, if asked, weights."""
        moves = [layer.split(cotangent) for layer in self.layers]
        outer: list[Tensor] = []
        values = [error @ move for error, (move, _) in zip(at.back, moves, strict=True)]
        crossed: list[Tensor] = []
        error = _affine(at.inside[0], *moves[0])
        for place in range(len(at.slopes)):
            bend = at.bends[place]
            outer.append(torch.zeros_like(error) if bend is None else bend * error)
            crossed.append(error * at.slopes[place])
            error = torch.addmm(_affine(at.inside[place + 1], *moves[place + 1]), crossed[-1], at.weights[place + 1].mT)
        targets = -self._weight(len(error)) * error
        outer.append(self._turn(at, error))
        for place in reversed(range(len(self.layers))):
            values[place] = torch.addmm(values[place], outer[place], at.weights[place])
            if place > 0:
                outer[place - 1] = torch.addcmul(outer[place - 1], at.slopes[place - 1], values[place])
        if not weights:
            return values[0], targets, None
        found = torch.empty_like(cotangent)
        for place, layer in enumerate(self.layers):
            change = outer[place].mT @ at.inside[place]
            if place > 0:
                change = torch.addmm(change, at.back[place].mT, crossed[place - 1])
            _store(layer, found, change, outer[place])
        return values[0], targets, found

    def _error(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.loss == "square":
            return (outputs - targets) * self._weight(len(outputs)), None
        chances = torch.softmax(outputs, dim=-1)
        return (chances - targets) * self._weight(len(outputs)), chances

    def _turn(self, at: Pass, direction: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """The second derivative of the loss in the outputs, applied; it is symmetric."""
        if at.chances is not None:
            scaled = at.chances * direction
            direction = scaled - at.chances * scaled.sum(dim=-1, keepdim=True)
        return direction * self._weight(len(direction))

    def _weight(self, n: int) -> float:
        """Of one sample's slope in the mean loss; torch's square loss is the mean over the outputs as well."""
        return 1 / n if self.loss == "cross-entropy" else 2 / (n * self.outputs)


def dense_network(module: nn.Module, loss: Loss) -> DenseNetwork:
    """The form of a module that is a chain of dense layers with a ReLU after each but the last."""
    chain = [layer for layer in _leaves(module) if not isinstance(layer, nn.Flatten | nn.Identity)]
    dense, gates = chain[::2], chain[1::2]
    alternating = len(chain) % 2 == 1 and all(isinstance(gate, nn.ReLU) for gate in gates)
    layers: list[Dense] = []
    for layer in dense:
        if not alternating or not isinstance(layer, nn.Linear):
            kinds = " ".join(type(leaf).__name__ for leaf in chain)[:200]
            raise UsageError(f"expected Linear layers with a ReLU between them for --method replay, found {kinds}")
        at = sum(earlier.numbers for earlier in layers)
        layers.append(Dense(layer.out_features, layer.in_features, layer.bias is not None, at))
    return DenseNetwork(tuple(layers), loss)


def _leaves(module: nn.Module) -> list[nn.Module]:
    return [leaf for leaf in module.modules() if not list(leaf.children())]


def _affine(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return inputs @ weight.mT if bias is None else torch.addmm(bias, inputs, weight.mT)


def _gate(reached: Tensor, width: float) -> tuple[Tensor, Tensor, Tensor | None]:
    """φ, φ' and φ'' (None where it is zero)."""
    if width == 0:
        slope = (reached > 0).to(reached.dtype)
        return reached * slope, slope, None
    sharp = PROBIT / width
    slope = torch.sigmoid(sharp * reached)
    return nn.functional.softplus(sharp * reached) / sharp, slope, sharp * slope * (1 - slope)


def _store(layer: Dense, flat: Tensor, weight: Tensor, errors: Tensor) -> None:
    into, bias = layer.split(flat)
    into.copy_(weight)
    if bias is not None:
        torch.sum(errors, dim=0, out=bias)
