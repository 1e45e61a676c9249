"""The error to expect of candidates, from the Jacobian of the network that they went through.

With θ ≈ AᵀG, g the network up to its last layer and J_i its Jacobian at candidate i, what `single_layer/linearised.py`
says of rows of V holds of a network: H = Jᵀ P J with J made of A_i J_i, and

    E ||x̂_i − x_i||² = σ² tr [H⁻¹]_ii + ||dx_i||²,      dx = H⁻¹ Jᵀ P θ.

A mean over directions would not see that a layer on the way is blind to some of them.

P is the same for every output, so the blocks of H are (A Aᵀ)_ij (P J_i)ᵀ (P J_j). Up to `DENSE` unknowns they are
gathered some directions at a time, and H takes all the room there is. Beyond, tr [H⁻¹]_ii comes from products with H
(`foundation/probing.py`). A network sees some directions of a picture so faintly that they seldom settle: then nobody
is known, which is true.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation import probing
from exhume.attacks.foundation.certificate import APART
from exhume.attacks.foundation.projection import Projection
from exhume.attacks.foundation.retraction import tangent
from exhume.attacks.foundation.unknowns import DENSE, TINY, inverse_curvature, unknown_directions
from exhume.attacks.modules.span import GeneralSpanLoss
from exhume.attacks.single_layer.blends import Splits, ways
from exhume.features.module import Linearisation

HELD_NUMBERS = 2**20  # of the columns of J that are held at once, twice: some 16 MiB in double precision
RIDGE = 1e-10
PROBES = 2  # cross terms of candidates have either sign: no chance makes both probes small
FEWEST_COTANGENTS = 16  # random ones that estimate means over candidates
MOST_DIMENSIONS = 4096  # of which a second moment is gathered: as much memory as 4,096 features of 4,096 candidates
FAINTEST = 1e-6  # of the mean second moment: no less is told from the rounding of single precision


def expected_squares(loss: GeneralSpanLoss, fit: Projection, noise: float, free_norms: bool) -> Float[Tensor, " m"]:
    """The squared error of each candidate over its squared norm, for noise of variance σ² on each weight."""
    if fit.candidates.shape[1] == 1 and not free_norms:  # a sign alone is open
        return torch.full((len(fit.candidates),), torch.inf, dtype=torch.float64, device=fit.candidates.device)
    sizes = fit.candidates.double().square().sum(dim=1).clamp_min(TINY)
    each = noise * len(fit.residual) / loss.outputs  # outputs that repeat each other miss the same
    known = dense if fit.candidates.numel() <= DENSE else probed
    variances, steps = known(loss, fit, free_norms)
    return (each * variances + steps) / sizes


def dense(loss: GeneralSpanLoss, fit: Projection, free_norms: bool) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """tr [H⁻¹]_ii, and the squares of the steps that are still to be made."""
    found = gathered(loss, fit, free_norms)
    m, u = found.bases.shape[0], found.bases.shape[2]
    steps = (found.inverse @ found.descent).reshape(m, u).square().sum(dim=1)
    return found.inverse.diagonal().reshape(m, u).sum(dim=1), steps


@dataclass(frozen=True, eq=False, repr=False)
class Gathered:
    """H⁻¹ and Jᵀ P θ in the unknown directions of each candidate."""

    bases: Float[Tensor, "m d u"]
    inverse: Float[Tensor, "mu mu"]
    descent: Float[Tensor, " mu"]
    point: Linearisation
    spanned: Float[Tensor, "p m"]


def gathered(loss: GeneralSpanLoss, fit: Projection, free_norms: bool) -> Gathered:
    candidates = fit.candidates.double()
    m, p = len(candidates), loss.features.p
    bases = unknown_directions(candidates, free_norms)
    unknowns = bases.shape[2]
    point, spanned = loss.features.linearise(fit.candidates), _spanned(fit)
    pulled = (fit.coefficients.double() @ fit.residual.double())[:, None]
    few = max(1, HELD_NUMBERS // (m * p))
    blocks = [slice(start, min(start + few, unknowns)) for start in range(0, unknowns, few)]

    def columns(block: slice) -> Float[Tensor, "m u p"]:
        moved = [point.push(bases[:, :, u].to(fit.candidates)).double() for u in range(block.start, block.stop)]
        found = torch.stack(moved, dim=1)
        for _ in range(2):
            found = found - (found @ spanned) @ spanned.T
        return found

    curve = candidates.new_zeros(m, unknowns, m, unknowns)
    descent = candidates.new_zeros(m, unknowns)
    for number, block in enumerate(blocks):
        mine = columns(block)
        descent[:, block] = (mine * pulled).sum(dim=2)
        for other in blocks[number:]:
            theirs = mine if other == block else columns(other)
            shared = torch.einsum("iup,jvp->iujv", mine, theirs)
            curve[:, block, :, other] = shared
            curve[:, other, :, block] = shared.permute(2, 3, 0, 1)
    curve = curve * (fit.coefficients @ fit.coefficients.T).double()[:, None, :, None]
    return Gathered(bases, inverse_curvature(curve.reshape(m * unknowns, -1)), descent.reshape(-1), point, spanned)


def split_apart(loss: GeneralSpanLoss, fit: Projection, free_norms: bool) -> Splits | None:
    """What `single_layer/blends.py` asks of rows of V, asked of a network; None where there are too many unknowns.

    With the change A_i Δ_i of the weights, P acts on Δ_i alone: A_i (P Δ_i) is of rank one.
    """
    if fit.candidates.numel() > DENSE or (fit.candidates.shape[1] == 1 and not free_norms):
        return None
    found, candidates, amplitudes = gathered(loss, fit, free_norms), fit.candidates.double(), fit.coefficients.double()
    m, _, u = found.bases.shape
    likeness, norms = amplitudes @ amplitudes.T, candidates.norm(dim=1, keepdim=True)
    before = loss.features(fit.candidates).double()
    left, along, moves = [], [], []
    for way in ways(candidates):
        way = way if free_norms else tangent(way, candidates)
        apart = APART * norms * way / way.norm(dim=1, keepdim=True).clamp_min(TINY)
        ahead, behind = (loss.features((candidates + side).to(fit.candidates)).double() for side in (apart, -apart))
        change = (ahead + behind) / 2 - before
        for _ in range(2):
            change = change - (change @ found.spanned) @ found.spanned.T
        cotangents = (likeness[:, :, None] * change[:, None]).to(fit.features)
        pulled = torch.stack([found.point.pull(each).double() for each in cotangents])
        against = torch.einsum("jdu,ijd->iju", found.bases, pulled).reshape(m, m * u)
        made_up = against @ found.inverse
        left.append((likeness.diagonal() * change.square().sum(dim=1) - (made_up * against).sum(dim=1)).clamp_min(0))
        seen = (amplitudes @ fit.residual.double() * change).sum(dim=1)
        along.append(seen - made_up @ found.descent)
        moves.append(made_up.reshape(m, m, u).norm(dim=2) / norms[:, 0])
    return Splits(torch.stack(left), torch.stack(along), torch.stack(moves))


def probed(loss: GeneralSpanLoss, fit: Projection, free_norms: bool) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """The same by products with H; infinite where it is not known."""
    point, spanned = loss.features.linearise(fit.candidates), _spanned(fit).to(fit.features)
    amplitudes = fit.coefficients.to(fit.features)
    inverse, moment = _preconditioner(loss, fit, point)

    def allowed(directions: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        return directions if free_norms else tangent(directions, fit.candidates)

    def curve(directions: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        moved = amplitudes.T @ point.push(directions)
        moved = moved - (moved @ spanned) @ spanned.T
        return allowed(point.pull(amplitudes @ moved))

    def condition(directions: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        if moment is not None:
            directions = torch.cholesky_solve(directions.T.to(moment), moment).T.to(directions)
        return allowed(inverse.to(directions) @ directions)

    variances = probing.traces(curve, condition, allowed, fit.candidates, PROBES)
    if bool(variances.isinf().all()):
        return variances, variances
    step, settled = probing.solve(curve, allowed(point.pull(amplitudes @ fit.residual.to(amplitudes))), condition)
    steps = step.double().square().sum(dim=1)
    return variances, steps if settled else torch.full_like(steps, torch.inf)


def _preconditioner(
    loss: GeneralSpanLoss, fit: Projection, point: Linearisation
) -> tuple[Float[Tensor, "m m"], Float[Tensor, "d d"] | None]:
    """M⁻¹, M_ij = (A Aᵀ)_ij tr(J_i J_jᵀ) / d, and the Cholesky factor of S, the mean of J_iᵀ J_i with tr S = d.

    By random cotangents that all candidates share, enough of them for S to have full rank.
    """
    m, d = fit.candidates.shape
    moment = fit.features.new_zeros(d, d) if d <= MOST_DIMENSIONS else None
    overlap = torch.zeros(m, m, dtype=torch.float64, device=fit.candidates.device)
    stream = torch.Generator().manual_seed(0)
    count = FEWEST_COTANGENTS + (0 if moment is None else 4 * d // m)
    for _ in range(count):
        probe = torch.randn(1, loss.features.p, generator=stream, dtype=torch.float64).to(fit.features)
        pulled = point.pull(probe.expand_as(fit.features).contiguous())
        overlap += pulled.double() @ pulled.double().T / count
        if moment is not None:
            moment += pulled.T @ pulled
    metric = (fit.coefficients @ fit.coefficients.T) * overlap / d
    scale = metric.diagonal().clamp_min(TINY).rsqrt()
    balanced = metric * scale[:, None] * scale + RIDGE * torch.eye(m).to(scale)
    inverse = torch.linalg.inv(balanced) * scale[:, None] * scale
    if moment is None:
        return inverse, None
    size = moment.diagonal().mean().clamp_min(torch.finfo(moment.dtype).tiny)
    return inverse, torch.linalg.cholesky((moment / size).double() + FAINTEST * torch.eye(d).to(moment.device))


def _spanned(fit: Projection) -> Float[Tensor, "p m"]:
    """An orthonormal basis of the candidates' features."""
    values = fit.features.double()
    return torch.linalg.qr((values / values.norm(dim=1, keepdim=True).clamp_min(TINY)).T).Q
