"""Gradient descent on both layers of f(x) = W₂ φ(W₁ x), without ever forming W₁.

The gradient in W₁ is Σ_i [W₂ᵀ e_i ∘ φ′(W₁ x_i)] x_iᵀ with e_i the gradient of the loss in the outputs of sample i. So
every step of (stochastic, momentum, weight decaying) gradient descent keeps

    W₁(t) = s(t) W₁(0) + C(t)ᵀ X,        C (n × h),

and the preactivations of the data are P = s Z₀ + G C with Z₀ = X W₁(0)ᵀ (n × h, one pass over W₁(0)) and G = X Xᵀ
(n × n). With Φ = φ(P), F = Φ W₂ᵀ and E = ∂loss/∂F (n × k) a step needs

    ∂loss/∂W₂ = Eᵀ Φ,        ∂loss/∂C = (E W₂) ∘ φ′(P):

the same iterates as descent on the weights, at h n (n + k) operations instead of h n d. All of it runs over blocks of
hidden units that stay in the processor's cache; φ and φ′ are cheaper to compute twice than to keep.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.activations import Activation
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import Rows
from exhume_papers.victims.curvature import largest_eigenvalue
from exhume_papers.victims.descent_loop import Tensors
from exhume_papers.victims.losses import Loss
from exhume_papers.victims.recipe import DescentRecipe

BLOCK_NUMBERS = 2**17


class SpanIterates:
    """A trainee (see descent_loop) whose first layer is the pair (s, C).

    `frozen`: it stays where it began, which is descent with G = 0; s then is the decay of the head alone.
    """

    def __init__(
        self,
        rows: Rows,
        head: Float[Tensor, "k h"],
        activation: Activation,
        inputs: Float[Tensor, "n d"],
        targets: Float[Tensor, "n k"],
        loss: Loss,
        recipe: DescentRecipe,
        *,
        scale: float = 1.0,
        frozen: bool = False,
    ) -> None:
        self.activation, self.targets, self._loss = activation, targets, loss
        self.momentum, self.decay = recipe.momentum, recipe.weight_decay
        self.initial = RidgeFeatures(rows, activation).products(inputs)
        self.gram = (inputs.double() @ inputs.double().T).to(inputs.dtype)
        if frozen:
            self.gram.zero_()
        self.scale, self.frozen_scale = scale, scale if frozen else None
        self.coefficients = torch.zeros_like(self.initial)
        self.head = head.clone()
        self._speeds: _Speeds | None = None
        if self.momentum:
            self._speeds = _Speeds(0.0, torch.zeros_like(self.coefficients), torch.zeros_like(self.head))
        self._preactivations = torch.empty_like(self.initial)
        self._batch: Tensor | None = None
        self._errors = torch.empty(0)

    @property
    def samples(self) -> int:
        return len(self.targets)

    @torch.no_grad()
    def loss(self) -> float:
        return float(self._loss.value(self._outputs(None), self.targets))

    @torch.no_grad()
    def differentiate(self, batch: Int[Tensor, " b"] | None) -> float:
        targets = self.targets if batch is None else self.targets[batch]
        outputs = self._outputs(batch)
        self._batch, self._errors = batch, self._loss.gradient(outputs, targets)
        return float(self._loss.value(outputs, targets))

    @torch.no_grad()
    def move(self, step_size: float) -> None:
        speeds = self._speeds
        if speeds is not None:
            speeds.scale = self.momentum * speeds.scale + self.decay * self.scale
        for block in self._blocks():
            head, coefficients = self.head[:, block], self.coefficients[:, block]
            preactivations = self._preactivations[:, block]
            of_head = self._errors.T @ self.activation.value(preactivations)
            of_coefficients = (self._errors @ head).mul_(self.activation.derivative(preactivations))
            if speeds is None:
                coefficients.mul_(1 - step_size * self.decay)
                head.mul_(1 - step_size * self.decay)
                self._add(coefficients, of_coefficients, -step_size)
                head.add_(of_head, alpha=-step_size)
            else:
                speed = speeds.coefficients[:, block].mul_(self.momentum).add_(coefficients, alpha=self.decay)
                self._add(speed, of_coefficients, 1.0)
                coefficients.add_(speed, alpha=-step_size)
                head_speed = speeds.head[:, block].mul_(self.momentum).add_(head, alpha=self.decay).add_(of_head)
                head.add_(head_speed, alpha=-step_size)
        self.scale -= step_size * (self.decay * self.scale if speeds is None else speeds.scale)

    @torch.no_grad()
    def curvature(self, batch: Int[Tensor, " b"] | None) -> float:
        outputs = self._outputs(batch)
        gram = self.gram if batch is None else self.gram[batch][:, batch]
        feature_gram = torch.zeros_like(gram)
        for block in self._blocks():
            features = self.activation.value(self._preactivations[:, block])
            feature_gram += features @ features.T

        def product(vector: Tensor) -> Tensor:
            """Rᵀ J Jᵀ R, where J Jᵀ u = Φ Φᵀ u + (φ′(P) ∘ G [φ′(P) ∘ u W₂]) W₂ᵀ."""
            u = self._loss.root(outputs, vector, transposed=False)
            total = feature_gram @ u
            for block in self._blocks():
                head, slopes = self.head[:, block], self.activation.derivative(self._preactivations[:, block])
                total += (gram @ (u @ head).mul_(slopes)).mul_(slopes) @ head.T
            return self._loss.root(outputs, total, transposed=True)

        return largest_eigenvalue(product, outputs)

    def state(self) -> Tensors:
        own = {
            "scale": torch.tensor(self.scale, dtype=torch.float64),
            "coefficients": self.coefficients,
            "head": self.head,
        }
        if self._speeds is not None:
            own["speed.scale"] = torch.tensor(self._speeds.scale, dtype=torch.float64)
            own["speed.coefficients"] = self._speeds.coefficients
            own["speed.head"] = self._speeds.head
        return own

    def restore(self, state: Tensors) -> None:
        self.scale = float(state["scale"])
        self.coefficients.copy_(state["coefficients"])
        self.head.copy_(state["head"])
        if self._speeds is not None:
            self._speeds.scale = float(state["speed.scale"])
            self._speeds.coefficients.copy_(state["speed.coefficients"])
            self._speeds.head.copy_(state["speed.head"])

    def _outputs(self, batch: Int[Tensor, " b"] | None) -> Float[Tensor, "b k"]:
        """F on the batch; leaves P behind."""
        initial, gram = (self.initial, self.gram) if batch is None else (self.initial[batch], self.gram[batch])
        if len(self._preactivations) != len(gram):
            self._preactivations = torch.empty_like(initial)
        outputs = initial.new_zeros(len(gram), len(self.head))
        scale = self.scale if self.frozen_scale is None else self.frozen_scale
        for block in self._blocks():
            preactivations = self._preactivations[:, block]
            torch.addmm(initial[:, block], gram, self.coefficients[:, block], beta=scale, out=preactivations)
            outputs += self.activation.value(preactivations) @ self.head[:, block].T
        return outputs

    def _add(self, target: Float[Tensor, "n rows"], values: Float[Tensor, "b rows"], factor: float) -> None:
        if self._batch is None:
            target.add_(values, alpha=factor)
        else:
            target.index_add_(0, self._batch, values, alpha=factor)

    def _blocks(self) -> Iterator[slice]:
        width, size = self.head.shape[1], max(1, BLOCK_NUMBERS // self.samples)
        return (slice(start, min(start + size, width)) for start in range(0, width, size))


class _Speeds:
    """The momentum buffers of s, C and W₂."""

    def __init__(self, scale: float, coefficients: Tensor, head: Tensor) -> None:
        self.scale, self.coefficients, self.head = scale, coefficients, head
