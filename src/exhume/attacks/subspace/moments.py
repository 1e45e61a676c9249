"""The span of the training data, estimated from the weights of a model whose first layer never moved.

With g_k = v_k / std(v) and t = θ without its affine part, so that Σ_k t_k = 0 and Σ_k t_k g_k = 0, the Hermite moments
of the weights are

    M₂    = (1/p) Σ_k t_k g_k g_kᵀ              →  c₂ Σ_i α_i u_i u_iᵀ,
    M₃(w) = (1/p) Σ_k t_k (g_k·w) g_k g_kᵀ      →  c₃ Σ_i α_i (u_i·w) u_i u_iᵀ

with u_i the directions of the samples: the largest eigenvalues of M₂ belong to their span. Odd activations have c₂ = 0;
for them M₃ with several random w. At finite p noise hides the samples of small coefficients, and the span is found only
in part: more directions than samples are taken, and what is found there is the start of an attack in the whole space.

Neither is ever formed: eigenvectors come from subspace iteration, X ← orth(M² X), each product two passes over V with
as many columns as directions. With several outputs the squares of their moments are added.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.parametrisation import Subspace
from exhume.attacks.single_layer.gauss_newton import mean_square
from exhume.attacks.single_layer.proposals import moments_blind
from exhume.attacks.single_layer.span import SpanLoss

ITERATIONS = 3
AFFINE_STEPS = 40
AFFINE_TOLERANCE = 1e-6
CONTRACTIONS = 8  # random directions w of third moments


def moment_subspace(loss: SpanLoss, directions: int, generator: torch.Generator) -> Subspace:
    """The leading directions of the weights' moments, of order 2 or, for activations that are blind there, 3."""
    d, like = loss.features.d, loss.weights
    deviation = mean_square(loss) ** 0.5
    kernels = without_affine_part(loss)
    if moments_blind(loss.features.activation):
        along = torch.randn(CONTRACTIONS, d, generator=generator, dtype=torch.float64).to(like) / deviation
        kernels = torch.cat([output * loss.push_forward(along) for output in kernels])
    found = torch.randn(min(directions, d), d, generator=generator, dtype=torch.float64).to(like)
    for _ in range(ITERATIONS):
        found = _orthonormal(found)
        total = torch.zeros_like(found)
        for kernel in kernels:
            total += _moment_times(loss, _moment_times(loss, found, kernel, deviation), kernel, deviation)
        found = total
    return Subspace(_orthonormal(found).T.contiguous())


def _moment_times(
    loss: SpanLoss, rows: Float[Tensor, "s d"], kernel: Float[Tensor, " p"], deviation: float
) -> Float[Tensor, "s d"]:
    """(1/p) Σ_k kernel_k g_k g_kᵀ times each row. Two passes."""
    forward = loss.push_forward(rows).mul_(kernel)
    return loss.pull_back(lambda block: forward[:, block], rows) / (loss.p * deviation**2)


def without_affine_part(loss: SpanLoss) -> Float[Tensor, "k p"]:
    """θ minus its regression on [V, 1], by conjugate gradients on the normal equations: V is nearly isotropic."""
    left = loss.weights.clone()
    deviation = mean_square(loss) ** 0.5

    def gather(values: Float[Tensor, "k p"]) -> tuple[Tensor, Tensor]:
        slopes = loss.pull_back(lambda block: values[:, block], like) / deviation
        return slopes, loss.ranks.sum(values.sum(dim=1, keepdim=True))

    def spread(slopes: Float[Tensor, "k d"], constants: Float[Tensor, "k 1"]) -> Float[Tensor, "k p"]:
        return loss.push_forward(slopes / deviation) + constants

    like = torch.zeros(len(left), loss.features.d).to(left)
    slopes, constants = gather(left)
    direction, size = (slopes, constants), _square(slopes, constants)
    first = size
    for _ in range(AFFINE_STEPS):
        if not float(size.max()) > AFFINE_TOLERANCE**2 * float(first.max()):
            break
        image = spread(*direction)
        bend = loss.ranks.sum(image.square().sum(dim=1, keepdim=True)).clamp_min(torch.finfo(image.dtype).tiny)
        left = left - size / bend * image
        slopes, constants = gather(left)
        last, size = size, _square(slopes, constants)
        ratio = size / last.clamp_min(torch.finfo(last.dtype).tiny)
        direction = (slopes + ratio * direction[0], constants + ratio * direction[1])
    return left


def _square(slopes: Float[Tensor, "k d"], constants: Float[Tensor, "k 1"]) -> Float[Tensor, "k 1"]:
    return slopes.square().sum(dim=1, keepdim=True) + constants.square()


def _orthonormal(rows: Float[Tensor, "s d"]) -> Float[Tensor, "s d"]:
    return torch.linalg.qr(rows.double().T).Q.T.to(rows)
