"""At which resolution an image is to be trusted, decided by weights that the attack never used.

Take what the candidates leave of unseen weights, H, for noise on every equation: the frequencies that are not resolved
are such noise, and so is everything that is wrong. With the prior, coordinate j of candidate i then has a posterior
variance C_ij (`posterior.py`): large for a sample with a small coefficient, for samples that resemble each other and
for coordinates that the rows hardly see. At resolution r the expected square of the error of candidate i is
Σ_{j ≤ r} C_ij, that of its own part is what is left of the norm, and so a cosine to the truth at that resolution can be
expected:

    cos²_i(r) = s_i(r) / (s_i(r) + Σ_{j ≤ r} C_ij),    s_i(r) = (norm² − Σ_j C_ij) · share of x̂_i below r.

As in `certificate.py`, H is divided by the share of the equations that is left over (`free_numbers` are used up), and
luck with a few unseen weights is allowed for. What is trusted is to have a cosine above 0.9. The model of the noise is
crude: samples that are missing altogether are noise too, and one that looks like the candidates; so a candidate is
trusted to the largest r with an expected cosine of 0.95, half the square of the error. Of candidates that are copies of
each other only the strongest is. Frequencies beyond the point where the steering weights stop being predicted better
are not trusted for anybody.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

EXPECTED_COSINE = 0.95  # to be trusted at 0.9
FIRST_RUNG, RUNGS_AN_OCTAVE = 12, 2
STILL_BETTER = 0.01  # a rung has to lower the loss by this share to count


@dataclass(frozen=True, eq=False)
class Resolution:
    """What can be trusted: `trusted[i]` frequencies of candidate i (0: none), `frequencies` of the result as a whole.

    `cosines` are those to expect of each candidate at `frequencies`.
    """

    frequencies: int
    trusted: tuple[int, ...]
    cosines: tuple[float, ...]

    @property
    def confidence(self) -> tuple[float, ...]:
        """1/2 at the cosine to expect of what is trusted, by the square of the tangent."""
        least = 1 / EXPECTED_COSINE**2 - 1
        return tuple(0.0 if cosine <= 0 else 1 / (1 + (1 / cosine**2 - 1) / least) for cosine in self.cosines)


def ladder(d: int) -> list[int]:
    """Resolutions from 12 to d, two an octave.

    >>> ladder(192)
    [12, 17, 24, 34, 48, 68, 96, 136, 192]
    """
    count = math.ceil(RUNGS_AN_OCTAVE * math.log2(max(d / FIRST_RUNG, 1)))
    rungs = [round(FIRST_RUNG * 2 ** (number / RUNGS_AN_OCTAVE)) for number in range(count)]
    return [rung for rung in rungs if rung < d] + [d]


def expected_cosines(
    candidates: Float[Tensor, "m d"], spread: Float[Tensor, "m d"], rungs: Sequence[int]
) -> Float[Tensor, "rungs m"]:
    """Of candidates in the order of the frequencies, at the norm of a sample; `spread` is C."""
    errors = spread.cumsum(dim=1)
    energies = candidates.double().square()
    total = energies.sum(dim=1)
    resolved = (total - errors[:, -1]).clamp_min(0)
    below = energies.cumsum(dim=1) / total[:, None].clamp_min(torch.finfo(torch.float64).tiny) * resolved[:, None]
    at = torch.tensor([rung - 1 for rung in rungs], device=below.device)
    signal, error = below[:, at], errors[:, at]
    return (signal / (signal + error).clamp_min(torch.finfo(torch.float64).tiny)).sqrt().T


def free_numbers(curvature: Float[Tensor, "m m"], noise: float, variance: Float[Tensor, " d"]) -> float:
    """How many numbers the equations determine rather than the prior: Σ_lj 1 / (1 + H / (M_l variance_j))."""
    values = torch.linalg.eigvalsh(curvature.double()).clamp_min(torch.finfo(torch.float64).tiny)
    return float((1 / (1 + noise / (values[:, None] * variance.double()))).sum())


def last_useful(rungs: Sequence[int], losses: Sequence[float]) -> int:
    """The last resolution whose own frequencies made weights better predicted."""
    best, found = math.inf, rungs[0]
    for rung, loss in zip(rungs, losses, strict=True):
        if loss < (1 - STILL_BETTER) * best:
            best, found = loss, rung
    return found


def trust(rungs: Sequence[int], cosines: Float[Tensor, "rungs m"], losses: Sequence[float]) -> Resolution:
    """`losses` are those of the candidates cut to each rung, on weights that were not fitted.

    The result as a whole is trusted to where at least half of the candidates are that are trusted at all.
    """
    useful = last_useful(rungs, losses)
    trusted = []
    for candidate in cosines.T.tolist():
        good = [
            rung for rung, cosine in zip(rungs, candidate, strict=True) if cosine >= EXPECTED_COSINE and rung <= useful
        ]
        trusted.append(max(good, default=0))
    reached = sorted((rung for rung in trusted if rung), reverse=True)
    frequencies = reached[(len(reached) - 1) // 2] if reached else rungs[0]
    return Resolution(frequencies, tuple(trusted), tuple(cosines[list(rungs).index(frequencies)].tolist()))
