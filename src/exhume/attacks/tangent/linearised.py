"""The error to expect of candidates that gradients were read at, from the Jacobian of those gradients.

The target is T ≈ Σ_i A_i·G(x_i). Where candidate i moves by dx_i, its combined gradient e_i h_iᵀ moves by de_i h_iᵀ +
e_i dh_iᵀ in each layer: J dx. What coefficients make up for is projected out by P, and H = Jᵀ P J as in
`single_layer/linearised.py`. J is a Jacobian-vector product of the network's gradients, Jᵀ one sweep back.

Up to `DENSE` unknowns H is gathered from its products with unit vectors. Beyond, tr [H⁻¹]_ii comes from products alone
(`foundation/probing.py`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation import probing
from exhume.attacks.foundation.projection import invert_gram
from exhume.attacks.foundation.retraction import tangent
from exhume.attacks.foundation.unknowns import DENSE, TINY, inverse_curvature, unknown_directions
from exhume.attacks.tangent.span import TangentFit, TangentSpanLoss

Layers = list[Float[Tensor, "_ _"]]
RIDGE = 1e-10
PROBES = 2  # cross terms of candidates have either sign: no chance makes both probes small


def expected_squares(loss: TangentSpanLoss, fit: TangentFit, noise: float) -> Float[Tensor, " m"]:
    """The squared error of each candidate over its squared norm, for noise of variance σ² times the target's own."""
    system = _System(loss, fit)
    variances, steps = system.dense() if fit.candidates.numel() <= DENSE else system.probed()
    each = noise * loss.energy / loss.equations
    return (each * variances + steps) / fit.candidates.double().square().sum(dim=1).clamp_min(TINY)


@dataclass(frozen=True, eq=False, repr=False)
class _System:
    """H at a fit of free coefficients."""

    loss: TangentSpanLoss
    fit: TangentFit

    def dense(self) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """tr [H⁻¹]_ii, and the squares of the steps that are still to be made."""
        bases = unknown_directions(self.fit.candidates, False)
        m, _, u = bases.shape
        columns = []
        for i in range(m):
            for a in range(u):
                way = torch.zeros_like(self.fit.candidates)
                way[i] = bases[i, :, a]
                columns.append(torch.einsum("jdu,jd->ju", bases, self.curve(way)).reshape(-1))
        inverse = inverse_curvature(torch.stack(columns).double())
        descent = torch.einsum("jdu,jd->ju", bases, self.descent()).reshape(-1).double()
        steps = (inverse @ descent).reshape(m, u).square().sum(dim=1)
        return inverse.diagonal().reshape(m, u).sum(dim=1), steps

    def probed(self) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        candidates = self.fit.candidates
        errors = self.fit.gradients.combined(self.fit.coefficients, self.loss.units)
        metric = errors @ errors.T
        scale = metric.diagonal().clamp_min(TINY).rsqrt()
        inverse = torch.linalg.inv(metric * scale[:, None] * scale + RIDGE * torch.eye(len(metric)).to(metric))
        inverse = inverse * scale[:, None] * scale

        def allowed(directions: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
            return tangent(directions, candidates)

        def condition(directions: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
            return allowed(inverse @ directions)

        variances = probing.traces(self.curve, condition, allowed, candidates, PROBES)
        step, settled = probing.solve(self.curve, self.descent(), condition)
        steps = step.double().square().sum(dim=1)
        return variances, steps if settled else torch.full_like(steps, torch.inf)

    def curve(self, directions: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
        """H times directions."""
        errors, signals = self._combined(self.fit.candidates)
        turned, moved = self._push(directions)
        changes = [de.T @ h + e.T @ dh for e, h, de, dh in zip(errors, signals, turned, moved, strict=True)]
        return self._pull(self._not_made_up(changes))

    def descent(self) -> Float[Tensor, "m c"]:
        """Jᵀ P of what is left of the target."""
        return self._pull(self._not_made_up([self._target(layer) for layer in self.loss.layers]))

    def _combined(self, rows: Float[Tensor, "m c"]) -> tuple[Layers, Layers]:
        """Error signals and signals in each layer, of each candidate's own combination of gradients."""
        found = self.loss.network.gradients(rows)
        errors = [
            torch.einsum("mq,mqh->mh", self.fit.coefficients.to(rows), self._on_units(layer, found.backward[layer]))
            for layer in self.loss.layers
        ]
        return errors, [found.forward[layer] for layer in self.loss.layers]

    def _push(self, directions: Float[Tensor, "m c"]) -> tuple[Layers, Layers]:
        """How they move along directions: the derivative of a sweep back by what it is given."""
        with torch.enable_grad():
            moving = self.fit.candidates.detach().clone().requires_grad_()
            errors, signals = self._combined(moving)
            parts = [*errors, *signals]
            live = [part for part in parts if part.requires_grad]  # the last error signals are the outputs' own
            given = [torch.zeros_like(part, requires_grad=True) for part in live]
            (swept,) = torch.autograd.grad(live, moving, given, create_graph=True)
            moved = iter(torch.autograd.grad(swept, given, directions, allow_unused=True, materialize_grads=True))
        found = [next(moved) if part.requires_grad else torch.zeros_like(part) for part in parts]
        return found[: len(errors)], found[len(errors) :]

    def _not_made_up(self, changes: Layers) -> Layers:
        found = self.fit.gradients
        errors = [self._on_units(layer, found.backward[layer]) for layer in self.loss.layers]
        signals = [found.forward[layer] for layer in self.loss.layers]
        inverse = invert_gram(self.fit.gram)
        for _ in range(2):
            onto = sum(
                torch.einsum("mc,hc,mqh->mq", h, change, e)
                for e, h, change in zip(errors, signals, changes, strict=True)
            )
            assert isinstance(onto, Tensor)
            shares = (inverse @ onto.reshape(-1)).reshape(onto.shape)
            changes = [
                change - torch.einsum("mq,mqh,mc->hc", shares, e, h)
                for e, h, change in zip(errors, signals, changes, strict=True)
            ]
        return changes

    def _pull(self, changes: Layers) -> Float[Tensor, "m c"]:
        with torch.enable_grad():
            moving = self.fit.candidates.detach().clone().requires_grad_()
            errors, signals = self._combined(moving)
            total = sum(((e @ change) * h).sum() for e, h, change in zip(errors, signals, changes, strict=True))
            assert isinstance(total, Tensor)
            (found,) = torch.autograd.grad(total, moving)
        return tangent(found, self.fit.candidates)

    def _target(self, layer: int) -> Float[Tensor, "_ _"]:
        target = self.loss.targets[layer]
        assert target is not None, "a layer that is looked at"
        return target[self.loss.units] if layer == 0 and self.loss.units is not None else target

    def _on_units(self, layer: int, errors: Float[Tensor, "m q _"]) -> Float[Tensor, "m q _"]:
        return errors[:, :, self.loss.units] if layer == 0 and self.loss.units is not None else errors
