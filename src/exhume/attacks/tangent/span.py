"""The projected loss for gradients in the weights: how much of a target lies outside the span of the candidates'.

The target T is a matrix for each layer: the change of the weights during training (neural tangent kernel), or the
weights themselves (KKT conditions). With the gradients G_i of candidate i, one for each of q combinations of outputs,

    L(X̂) = min over A of  ||T − Σ_i A_i·G_i||² / ||T||² = 1 − (2 c·b − cᵀ K c) / ||T||²,    c = vec A,

where K (m q × m q) are inner products of gradients and b those with T, which `features/layered.py` gives without
forming a gradient. Two rules for the coefficients:

    free     one for each output, of any sign: c = K⁺ b. Contains every loss function and every weighting of samples.
    margin   the KKT conditions of a classifier of largest margin, as published: candidate i has a class y_i, gradients
             are those of f_y − f_j for every other class j (of y f for one output), and no coefficient is negative.
             Published is the largest f_j alone, which jumps from class to class; at the optimum it is the same.

c is where the loss is least, so it may be held fixed while the loss is differentiated in X̂. What is subtracted is of
the size of ||T||², so all of this is done in float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.attacks.foundation.projection import invert_gram
from exhume.errors import ExhumeError
from exhume.features.layered import Gradients, LayeredNetwork

Rule = Literal["free", "margin"]
BARELY_EQUAL, NEARLY_EQUAL = 1e-11, 1e-8  # so that the gradients of copies do not make the matrix singular
Targets = Sequence[Float[Tensor, "_ _"] | None]


@dataclass(frozen=True, eq=False, repr=False)
class TangentFit:
    """The target projected on the span of the candidates' gradients; `classes` where the rule has any."""

    candidates: Float[Tensor, "m d"]
    gradients: Gradients
    gram: Float[Tensor, "mq mq"]
    products: Float[Tensor, " mq"]
    coefficients: Float[Tensor, "m q"]
    loss: float
    classes: Int[Tensor, " m"] | None = None


class TangentSpanLoss:
    """L and its gradient. `units` of the first layer are those whose weights are looked at (None: all)."""

    def __init__(
        self,
        network: LayeredNetwork,
        targets: Targets,
        units: Int[Tensor, " u"] | None = None,
        rule: Rule = "free",
        counter: PassCounter | None = None,
    ) -> None:
        self.network, self.targets, self.units, self.rule = network, tuple(targets), units, rule
        self.layers = tuple(layer for layer, target in enumerate(self.targets) if target is not None)
        looked_at = [self._part(layer) for layer in self.layers]
        self.energy = sum(float(part.square().sum()) for part in looked_at)
        self.equations = sum(part.numel() for part in looked_at)
        self.counter = counter or PassCounter()
        if not self.energy > 0:
            raise ExhumeError("expected weights that were trained, found none that moved: nothing was learned")

    @property
    def passes(self) -> float:
        """Evaluations of the gradients and sweeps back to the candidates so far."""
        return self.counter.total

    def at(self, sharpness: float | None) -> "TangentSpanLoss":
        """The same loss for a network of that sharpness."""
        return TangentSpanLoss(self.network.at(sharpness), self.targets, self.units, self.rule, self.counter)

    def fit(self, candidates: Float[Tensor, "m d"], classes: Int[Tensor, " m"] | None = None) -> TangentFit:
        """`classes` are those of the rule "margin"; without any, candidates take turns. One pass."""
        with torch.no_grad():
            return self._fit(candidates, self._turns(len(candidates)) if classes is None else classes)

    def fit_with_gradient(
        self, candidates: Float[Tensor, "m d"], classes: Int[Tensor, " m"] | None = None
    ) -> tuple[TangentFit, Float[Tensor, "m d"]]:
        """The fit and ∂L/∂X̂. Two passes."""
        with torch.enable_grad():
            moving = candidates.detach().clone().requires_grad_()
            fit = self._fit(moving, self._turns(len(candidates)) if classes is None else classes)
            flat = fit.coefficients.reshape(-1)
            explained = 2 * (flat @ fit.products) - flat @ fit.gram @ flat
            (slope,) = torch.autograd.grad(explained, moving)
        self.counter.total += 1
        still = TangentFit(
            candidates,
            fit.gradients,
            fit.gram.detach(),
            fit.products.detach(),
            fit.coefficients,
            fit.loss,
            fit.classes,
        )
        return still, slope / -self.energy

    def predict_loss(self, candidates: Float[Tensor, "m d"], coefficients: Float[Tensor, "m k"]) -> float:
        """The loss for coefficients of outputs that were found elsewhere, on other units. One pass."""
        self.counter.total += 1
        with torch.no_grad():
            gradients = self.network.gradients(candidates)
            flat = coefficients.to(candidates).reshape(-1)
            gram, products = gradients.gram(self.layers, self.units), gradients.products(self.targets, self.units)
            return float(self.energy - 2 * (flat @ products) + flat @ gram @ flat) / self.energy

    def of_outputs(self, fit: TangentFit) -> Float[Tensor, "m k"]:
        """The coefficients of a fit as those of each output on its own."""
        if self.rule == "free":
            return fit.coefficients
        assert fit.classes is not None, "the rule of margins has classes"
        return torch.einsum("mq,mqk->mk", fit.coefficients, self._directions(fit.classes).to(fit.coefficients))

    def removal_costs(self, fit: TangentFit) -> Float[Tensor, " m"]:
        """By how much L rises if a candidate is removed and the others' coefficients are fitted again (rule "free")."""
        m, q = fit.coefficients.shape
        inverse = invert_gram(fit.gram)
        costs = torch.zeros(m, dtype=torch.float64)
        for index in range(m):
            own = slice(index * q, (index + 1) * q)
            block = torch.linalg.pinv(inverse[own, own], hermitian=True)
            costs[index] = fit.coefficients[index] @ block @ fit.coefficients[index]
        return costs / self.energy

    def _fit(self, candidates: Float[Tensor, "m d"], classes: Int[Tensor, " m"]) -> TangentFit:
        self.counter.total += 1
        directions = self._directions(classes).to(candidates) if self.rule == "margin" else None
        gradients = self.network.gradients(candidates, directions)
        gram, products = gradients.gram(self.layers, self.units), gradients.products(self.targets, self.units)
        flat = _coefficients(gram.detach(), products.detach(), self.rule)
        explained = 2 * (flat @ products.detach()) - flat @ gram.detach() @ flat
        loss = 1 - float(explained) / self.energy
        taught = classes if self.rule == "margin" else None
        return TangentFit(candidates, gradients, gram, products, flat.reshape(len(candidates), -1), loss, taught)

    def _directions(self, classes: Int[Tensor, " m"]) -> Float[Tensor, "m q k"]:
        """f_y − f_j for all other classes j; ±f where there is one output only."""
        k = self.network.outputs
        if k == 1:
            return (1.0 - 2.0 * classes).reshape(-1, 1, 1)
        unit = torch.eye(k)
        others = torch.stack([torch.tensor([j for j in range(k) if j != y]) for y in classes.tolist()])
        return unit[classes][:, None] - unit[others]

    def _turns(self, m: int) -> Int[Tensor, " m"]:
        return torch.arange(m) % max(2, self.network.outputs)

    def _part(self, layer: int) -> Float[Tensor, "_ _"]:
        target = self.targets[layer]
        assert target is not None, "a layer that is looked at"
        return target[self.units] if layer == 0 and self.units is not None else target


def _coefficients(gram: Float[Tensor, "a a"], products: Float[Tensor, " a"], rule: Rule) -> Float[Tensor, " a"]:
    """c, for gradients of unit length. What is added to their cosines changes the loss to second order only."""
    scale = gram.diagonal().clamp_min(torch.finfo(gram.dtype).tiny).rsqrt()
    added = NEARLY_EQUAL if rule == "margin" else BARELY_EQUAL
    balanced = gram * scale[:, None] * scale + added * torch.eye(len(gram)).to(gram)
    factor, failed = torch.linalg.cholesky_ex(balanced)
    if failed:
        return invert_gram(gram) @ products
    if rule == "free":
        return torch.cholesky_solve((products * scale)[:, None], factor)[:, 0] * scale
    right = torch.linalg.solve_triangular(factor, (products * scale)[:, None], upper=False)[:, 0]
    from scipy.optimize import nnls  # here: slow to import, and only this rule of one attack needs it

    try:
        found = nnls(factor.T.cpu().numpy(), right.cpu().numpy(), maxiter=50 * len(gram))[0]
    except (RuntimeError, ValueError) as problem:  # too many iterations; numbers that are not finite
        raise torch.linalg.LinAlgError(f"nnls: {problem}") from problem
    return torch.from_numpy(found).to(gram) * scale
