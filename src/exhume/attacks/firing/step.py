"""One step of the candidates and their coefficients towards a likelier change: Gauss-Newton, by products alone.

The covariances stay as they are. With S_k⁻¹ for weights the residual of unit k is ΔW̃_k − Σ_i E C_ki x̃_i; moving x̃_i by
δ_i changes it by C_ki δ_i, where C is what the change itself says of the entries, and by u_ki p'_ki (w̃_k · δ_i) x̃_i.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.firing.belief import Belief, Outlook, look, quadratic
from exhume.attacks.firing.layer import FiringLayer
from exhume.attacks.foundation.conjugate_gradients import Stacked, conjugate_gradients

PRODUCTS = 25
SHARE = 1e-4  # of the squared gradient that conjugate gradients may leave
RIDGE = 1e-3  # on coefficients of new candidates, over the diagonal: candidates at random are nearly dependent
BLOCK_NUMBERS = 10_000_000  # of the products of parts that are held at once
TRIALS = 3  # shorter steps are tried so often before the covariances are renewed


@dataclass(frozen=True, eq=False, repr=False)
class JointMove(Stacked):
    candidates: Float[Tensor, "m c"]
    coefficients: Float[Tensor, "m s"]


def gauss_newton(layer: FiringLayer, outlook: Outlook, damping: float) -> JointMove:
    belief = outlook.belief
    x, k = belief.candidates, layer.outputs
    size = belief.coefficients.norm(dim=1, keepdim=True) + torch.finfo(x.dtype).tiny
    moving = outlook.signals * outlook.slope
    of_head = belief.coefficients[:, :k] * layer.head_scale

    def along(move: JointMove) -> tuple[Tensor, Tensor]:
        """What a move changes, of the layer and of the head."""
        turned, coefficients = layer.halfway @ move.candidates.T, move.coefficients * size
        entries = moving * turned + outlook.firing * (layer.signals @ coefficients.T)
        head = (outlook.gates * turned) @ of_head + outlook.features @ (coefficients[:, :k] * layer.head_scale)
        return outlook.entries @ move.candidates + entries @ x, head

    def back(layers: Tensor, heads: Tensor) -> JointMove:
        """The transpose."""
        onto = layers @ x.T
        pulled = moving * onto + outlook.gates * (heads @ of_head.T)
        coefficients = (outlook.firing * onto).T @ layer.signals
        coefficients[:, :k] += (outlook.features.T @ heads) * layer.head_scale
        return JointMove(_tangent(x, outlook.entries.T @ layers + pulled.T @ layer.halfway), size * coefficients)

    scale = _curvature(layer, outlook, size)

    def times(move: JointMove) -> JointMove:
        layers, heads = along(move)
        image = back(torch.bmm(outlook.weights, layers[:, :, None])[:, :, 0], heads / belief.head_noise)
        return JointMove(
            image.candidates + damping * scale.candidates * move.candidates,
            image.coefficients + damping * scale.coefficients * move.coefficients,
        )

    def condition(left: JointMove) -> JointMove:
        return JointMove(
            left.candidates / (scale.candidates * (1 + damping)),
            left.coefficients / (scale.coefficients * (1 + damping)),
        )

    wanted = back(outlook.weighed, outlook.head_left / belief.head_noise)
    found = conjugate_gradients(times, wanted, PRODUCTS, SHARE, condition).x
    return JointMove(found.candidates, found.coefficients * size)


def _curvature(layer: FiringLayer, outlook: Outlook, size: Float[Tensor, "m 1"]) -> JointMove:
    """The diagonal, the same for all coordinates of a candidate."""
    belief, k = outlook.belief, layer.outputs
    least = torch.finfo(belief.candidates.dtype).tiny
    per_unit = outlook.weights.diagonal(dim1=1, dim2=2).mean(dim=1)
    of_head = (belief.coefficients[:, :k] * layer.head_scale).square().sum(dim=1, keepdim=True)
    head_rows = layer.h / 2 * float(layer.halfway.square().mean()) / belief.head_noise
    candidates = (outlook.entries.square().T @ per_unit)[:, None] + of_head * head_rows
    coefficients = (outlook.firing.square() * quadratic(outlook)).T @ layer.signals.square()
    features = outlook.features.square().sum(dim=0)[:, None]
    coefficients[:, :k] += features * layer.head_scale.square() / belief.head_noise
    return JointMove(candidates + least, coefficients * size.square() + least)


def stepped(layer: FiringLayer, outlook: Outlook, damping: float) -> tuple[Outlook, float]:
    """The likelier of a few step lengths, or no step; and the damping of the next one.

    This is no `foundation.levenberg.Refinement`: that solves again with more damping, which costs as much here as the
    step itself, and goes on at the same covariances, which here are renewed after each step.
    """
    belief, move = outlook.belief, gauss_newton(layer, outlook, damping)
    for _ in range(TRIALS):
        after = look(layer, moved(belief, move))
        if after.surprise < outlook.surprise:
            return after, max(damping / 2, 1e-4)
        move, damping = 0.25 * move, min(3 * damping, 100.0)
    return outlook, damping


def moved(belief: Belief, move: JointMove) -> Belief:
    candidates = torch.nn.functional.normalize(belief.candidates + move.candidates, dim=1)
    parts = (belief.blur, belief.spread, belief.noise, belief.head_noise, belief.sure)
    return Belief(candidates, belief.coefficients + move.coefficients, *parts)


def _tangent(x: Float[Tensor, "m c"], move: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
    return move - (move * x).sum(dim=1, keepdim=True) * x


def best_coefficients(
    layer: FiringLayer, outlook: Outlook, candidates: Float[Tensor, "m c"], blur: float
) -> Float[Tensor, "m s"]:
    """Those with which new candidates explain most of what is left, all of them together: weighted least squares."""
    belief, s = outlook.belief, layer.signals.shape[1]
    z = layer.halfway @ candidates.T
    firing = layer.leak + (1 - layer.leak) * torch.special.ndtr(z / (blur * layer.usual))
    parts = (firing[:, :, None] * layer.signals[:, None, :]).flatten(1)
    gram = torch.zeros(parts.shape[1], parts.shape[1]).to(parts)
    block = max(1, BLOCK_NUMBERS // len(gram) ** 2)
    for some, weights in zip(parts.split(block), outlook.weights.split(block), strict=True):
        pairs = torch.matmul(torch.matmul(candidates, weights), candidates.T)
        gram += torch.einsum("ha,hab,hb->ab", some, pairs.repeat_interleave(s, 1).repeat_interleave(s, 2), some)
    wanted = (parts * (outlook.weighed @ candidates.T).repeat_interleave(s, 1)).sum(dim=0)
    features = z * torch.where(z > 0, 1.0, layer.leak)
    of_features = features.T @ features
    for output in range(layer.outputs):
        own = torch.arange(len(candidates), device=z.device) * s + output
        scale = float(layer.head_scale[output])
        gram[own[:, None], own] += of_features * scale**2 / belief.head_noise
        wanted[own] += scale * (features.T @ outlook.head_left[:, output]) / belief.head_noise
    return torch.linalg.solve(gram + RIDGE * torch.diag(gram.diagonal()), wanted).reshape(len(candidates), s)
