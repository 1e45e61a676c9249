"""Gradients of a layered network's outputs in its weights, known by their inner products alone.

For f(x) = W_L φ(… φ(W_1 x)) with h_0 = x, h_l = φ(z_l) and z_l = W_l h_{l−1}, the gradient of u·f in W_l is the
outer product e_l h_{l−1}ᵀ of an error signal, which runs backward from e_L = u, and a signal that runs forward. Inner
products of such gradients, of two inputs or with given matrices T_l, never need the matrices themselves:

    ⟨e hᵀ, e' h'ᵀ⟩ = (e·e') (h·h'),        ⟨e hᵀ, T⟩ = e·T h.

So m inputs with k outputs cost about m k forward passes, and a Gram matrix of their m k gradients nothing that depends
on the number of weights. Units of the first layer may be left out on the way: their weights are then not looked at.

*A sharpness.* The error signals of a ReLU network jump where a unit switches. With sharpness β, φ is replaced by
s softplus(β z / s) / β, where s is the size that z has for a random input: smooth, and the ReLU itself for β → ∞.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.activations import Activation
from exhume.errors import UsageError

PROBES = 256  # random inputs that show how large preactivations are


@dataclass(frozen=True, eq=False, repr=False)
class Gradients:
    """Gradients in all layers of q combinations of outputs of m inputs: `forward` h_{l−1} and `backward` e_l."""

    outputs: Float[Tensor, "m k"]
    forward: tuple[Float[Tensor, "m _"], ...]
    backward: tuple[Float[Tensor, "m q _"], ...]

    def gram(self, layers: Sequence[int], units: Int[Tensor, " u"] | None = None) -> Float[Tensor, "mq mq"]:
        """Inner products of the gradients in some layers; in the first one, of some units."""
        m, q, _ = self.backward[0].shape
        total = self.outputs.new_zeros(m * q, m * q)
        for layer in layers:
            signal, errors = self.forward[layer], self._errors(layer, units).reshape(m * q, -1)
            shared = (signal @ signal.T).repeat_interleave(q, dim=0).repeat_interleave(q, dim=1)
            total = total + shared * (errors @ errors.T)
        return total

    def products(
        self, targets: Sequence[Float[Tensor, "_ _"] | None], units: Int[Tensor, " u"] | None = None
    ) -> Float[Tensor, " mq"]:
        """Inner products with a matrix for each layer; None: the layer is not looked at."""
        total = self.outputs.new_zeros(self.backward[0].shape[:2])
        for layer, target in enumerate(targets):
            if target is not None:
                rows = target[units] if layer == 0 and units is not None else target
                reached = (self.forward[layer] @ rows.T)[:, None]
                total = total + (reached * self._errors(layer, units)).sum(dim=2)
        return total.reshape(-1)

    def combined(self, coefficients: Float[Tensor, "m q"], units: Int[Tensor, " u"] | None) -> Float[Tensor, "m u"]:
        """Σ_q c_q e_1 of each input: how its own combination of gradients moves the first layer's rows along it."""
        return torch.einsum("mq,mqh->mh", coefficients, self._errors(0, units))

    def _errors(self, layer: int, units: Int[Tensor, " u"] | None) -> Float[Tensor, "m q _"]:
        errors = self.backward[layer]
        return errors[:, :, units] if layer == 0 and units is not None else errors


@dataclass(frozen=True, eq=False, repr=False)
class LayeredNetwork:
    """Matrices W_1..W_L and φ.

    `sizes` are those that preactivations have for random inputs: a number a unit of the first layer, one number for
    each later one. They stay what they are when inputs are given in other coordinates.
    """

    weights: tuple[Float[Tensor, "_ _"], ...]
    activation: Activation
    sizes: tuple[Float[Tensor, "..."], ...] = ()
    sharpness: float | None = None

    @classmethod
    def measured(
        cls, weights: tuple[Float[Tensor, "_ _"], ...], activation: Activation, norm: float
    ) -> "LayeredNetwork":
        """With the sizes of preactivations for inputs of that norm."""
        stream = torch.Generator().manual_seed(0)
        rows = torch.randn(PROBES, weights[0].shape[1], generator=stream, dtype=torch.float64).to(weights[0])
        signal, sizes = rows * (norm / rows.norm(dim=1, keepdim=True)), []
        for layer, matrix in enumerate(weights[:-1]):
            reached = signal @ matrix.T
            squares = reached.square()
            sizes.append((squares.mean(dim=0) if layer == 0 else squares.mean()).sqrt())
            signal = activation.value(reached)
        return cls(weights, activation, tuple(size.clamp_min(_tiny(size)) for size in sizes))

    @property
    def d(self) -> int:
        return self.weights[0].shape[1]

    @property
    def outputs(self) -> int:
        return self.weights[-1].shape[0]

    @property
    def kinked(self) -> bool:
        """Whether error signals jump, so that only a surrogate of finite sharpness has their derivative."""
        return self.activation.kinked

    def at(self, sharpness: float | None) -> "LayeredNetwork":
        if sharpness is not None and not self.activation.rectifier:
            raise UsageError(f"expected a sharpness with relu only, found it with {self.activation.name}")
        return replace(self, sharpness=sharpness)

    def seen_through(self, basis: Float[Tensor, "d r"]) -> "LayeredNetwork":
        """The network as a function of z, for inputs x = U z with orthonormal columns."""
        return replace(self, weights=(self.weights[0] @ basis, *self.weights[1:]))

    def gradients(self, rows: Float[Tensor, "m d"], directions: Float[Tensor, "m q k"] | None = None) -> Gradients:
        """Of directions·f, all outputs on their own unless asked otherwise. Can be differentiated in the rows."""
        forward, slopes = [rows], []
        for layer, matrix in enumerate(self.weights[:-1]):
            value, slope = self._activate(forward[-1] @ matrix.T, layer)
            forward.append(value)
            slopes.append(slope)
        outputs = forward[-1] @ self.weights[-1].T
        if directions is None:
            directions = torch.eye(self.outputs).to(rows).expand(len(rows), -1, -1)
        backward = [directions]
        for matrix, slope in zip(reversed(self.weights[1:]), reversed(slopes), strict=True):
            backward.append((backward[-1] @ matrix) * slope[:, None])
        return Gradients(outputs, tuple(forward), tuple(reversed(backward)))

    def _activate(self, reached: Float[Tensor, "m h"], layer: int) -> tuple[Float[Tensor, "m h"], Float[Tensor, "m h"]]:
        if self.sharpness is None:
            return self.activation.value(reached), self.activation.derivative(reached)
        rate = self.sharpness / self.sizes[layer]
        steep = reached * rate
        return torch.nn.functional.softplus(steep, threshold=40) / rate, torch.sigmoid(steep)


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny
