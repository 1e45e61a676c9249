"""From an embedding back to the input, through an extractor that is known: x with g(x) = z.

Levenberg-Marquardt from several starts: with J the Jacobian of g at x (p × d) and e = g(x) − z,

    (JᵀJ + λ I) dx = −Jᵀ e,        λ smaller after a step that lowers |e|, larger after one that does not.

An inversion is called exact if

- |e| is as small as the embedding is exact: the recovered embedding is off by a share `accuracy` of its norm;
- J has full column rank at x, and so much of it that this inexactness moves x by little: with σ the least singular
  value of J, the input is off by about accuracy |z| / σ;
- AGREE starts come to the same x, and none to another, that from −x included. Full rank makes x unique nearby only.

With p < d the rank cannot be full, and nothing is tried. The same holds of an extractor that pools or clips away what
an image is made of: embeddings then stay what was found.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.features.module import ModuleFeatures

STARTS = 12
AGREE = 4  # starts that have to come to the same input
ITERATIONS = 100
ROUNDING = 1e-6  # an embedding is not more exact than this
EXACT = 0.05  # expected error over the norm
SCALES = (0.0, 0.3, 1.0, 3.0)  # of the starts, in turn
MOST_NUMBERS = 2**20  # of a Jacobian: a start takes seconds
GIVE_UP = 3  # embeddings without an exact inversion, before the others are not tried


@dataclass(frozen=True, eq=False, repr=False)
class Inverted:
    """`residual` is |g(x) − z| / |z|; `expected_error` is that of x over its norm, infinite without full rank."""

    inputs: Float[Tensor, "m d"]
    residual: Float[Tensor, " m"]
    expected_error: Float[Tensor, " m"]
    exact: Bool[Tensor, " m"]


@dataclass(frozen=True, eq=False, repr=False)
class _Solved:
    point: Float[Tensor, " d"]
    residual: float
    expected_error: float


def invertible(extractor: ModuleFeatures) -> bool:
    """Whether an inversion is worth a try: enough numbers in an embedding, and a Jacobian that fits."""
    return extractor.d <= extractor.p and extractor.d * extractor.p <= MOST_NUMBERS


def invert(
    extractor: ModuleFeatures, embeddings: Float[Tensor, "m p"], accuracy: float, generator: torch.Generator
) -> Inverted:
    """`accuracy`: how far embeddings are off at most, over their norms."""
    m, d = len(embeddings), extractor.d
    inputs = torch.zeros(m, d, dtype=torch.float64)
    residual, expected = torch.ones(m, dtype=torch.float64), torch.full((m,), torch.inf, dtype=torch.float64)
    exact = torch.zeros(m, dtype=torch.bool)
    if invertible(extractor):
        for index, target in enumerate(embeddings.double()):
            best, agreed = _inverted(extractor, target, max(accuracy, ROUNDING), generator)
            inputs[index], residual[index], expected[index] = best.point, best.residual, best.expected_error
            exact[index] = agreed
            if index + 1 >= GIVE_UP and not bool(exact.any()):
                break
    return Inverted(inputs, residual, expected, exact)


def _inverted(
    extractor: ModuleFeatures, target: Float[Tensor, " p"], accuracy: float, generator: torch.Generator
) -> tuple[_Solved, bool]:
    """The best of the starts, and whether it is exact and enough starts came there.

    Once one has come to x, the next one is −x. A start that comes nowhere, from −x too, does not count."""
    best = _Solved(torch.zeros(extractor.d, dtype=torch.float64), 1.0, torch.inf)
    agreed, mirrored = 0, False
    for index in range(STARTS):
        drawn = torch.randn(extractor.d, generator=generator, dtype=torch.float64)
        mirror = agreed > 0 and not mirrored
        start = -best.point if mirror else SCALES[index % len(SCALES)] * drawn
        mirrored = mirrored or mirror
        solved = _descend(extractor, start, target, accuracy)
        if solved.residual > 3 * accuracy or solved.expected_error > EXACT:
            best = solved if not agreed and solved.residual < best.residual else best
            continue
        apart = float((best.point - solved.point).norm() / solved.point.norm())
        if agreed and apart > 10 * max(best.expected_error, solved.expected_error):
            return best, False  # another input with the same embedding: which one was trained on cannot be known
        best, agreed = solved, agreed + 1
        if agreed >= AGREE:
            return best, True
    return best, False


def _descend(
    extractor: ModuleFeatures, start: Float[Tensor, " d"], target: Float[Tensor, " p"], accuracy: float
) -> _Solved:
    """Levenberg-Marquardt for one equation per feature, from one start.

    This is no `foundation.levenberg.Refinement`: the equations have a solution, and a residual down to rounding is what
    tells it from others. Damping falls by 8 with each step and to nothing, where that loop keeps a floor.
    """
    size = float(target.norm().clamp_min(1e-300))
    point, error = start, _values(extractor, start) - target
    jacobian = _jacobian(extractor, point)
    damping = 1e-2 * float(jacobian.square().sum()) / extractor.d
    for _ in range(ITERATIONS):
        gram = jacobian.T @ jacobian
        gram.diagonal().add_(max(damping, 1e-300))
        factor, failed = torch.linalg.cholesky_ex(gram)
        moved = point - torch.cholesky_solve((jacobian.T @ error)[:, None], factor)[:, 0]
        after = _values(extractor, moved) - target
        if int(failed) or not float(after.norm()) < float(error.norm()):
            damping *= 8
            if damping > 1e12 * size:
                break
            continue
        gained = 1 - float(after.norm() / error.norm())
        point, error, damping = moved, after, damping / 8
        jacobian = _jacobian(extractor, point)
        if float(error.norm()) <= 1e-12 * size or (gained < 1e-6 and float(error.norm()) <= 3 * accuracy * size):
            break
    residual = float(error.norm()) / size
    least = float(torch.linalg.svdvals(jacobian)[-1])
    length = float(point.norm())
    off = max(residual, accuracy) * size / (least * length) if least * length > 0 else torch.inf
    return _Solved(point, residual, off)


def _values(extractor: ModuleFeatures, point: Float[Tensor, " d"]) -> Float[Tensor, " p"]:
    with torch.no_grad():
        return extractor.evaluate(point[None].to(extractor.device))[0].cpu()


def _jacobian(extractor: ModuleFeatures, point: Float[Tensor, " d"]) -> Float[Tensor, "p d"]:
    """One pull per output, a chunk of them at a time."""
    row = point[None].to(extractor.device).requires_grad_(True)
    with torch.enable_grad():
        values = extractor.evaluate(row)[0]
    each = torch.eye(len(values), dtype=point.dtype, device=row.device)
    pulled = [
        torch.autograd.grad(values, row, some, is_grads_batched=True, retain_graph=True)[0][:, 0]
        for some in each.split(extractor.chunk)
    ]
    return torch.cat(pulled).cpu()
