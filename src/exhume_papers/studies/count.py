"""How many samples was a model trained on? Asked of the weights, in two ways.

*As published.* The published attack is told a number n̂. With n̂ < n there are too few rows for the weights, and single
candidates come out as blends of several images; with n̂ > n there is nothing left to explain, and the extra rows repeat
images that are there already. So n̂ is raised until the first duplicate appears. An extra row does not always become a
copy: it may also end with a coefficient of next to nothing (*idle*). And an attack that is stuck may copy an image
before it has found all of them. So there is a second estimate from the same attacks: the first n̂ that explains the
weights, without its copies and idle rows.

*By the certificate.* exhume's own attack is not told n: it grows and prunes candidates, and weights that it never used
say whether what remains is the data. `samples_found` is its estimate.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running.budget import Limits
from exhume.attacks.running.loop import run_attack
from exhume.attacks.running.prepare import prepare, run
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.single_layer.span import SpanLoss
from exhume.errors import UsageError
from exhume.experiments.truth import Truth
from exhume.metrics.errors import reconstruction_error
from exhume.metrics.matching import duplicates
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction

COPY_COSINE = 0.95
IDLE = 1.0  # a candidate is idle if the loss less than doubles without it
EXPLAINED = 1e-6  # a loss below, ten times what the published attack stops at, leaves nothing for another sample


@dataclass(frozen=True, eq=False, repr=False)
class CountEstimate:
    """The published attack, told n̂ = `samples`."""

    samples: int
    found: Reconstruction
    copy: Bool[Tensor, " m"]
    """Candidates that repeat another one, which stands for both."""
    idle: Bool[Tensor, " m"]
    """Others that the weights do not need."""
    error: float | None = None
    """rho, where the truth is known."""

    @property
    def copies(self) -> int:
        return int(self.copy.sum())

    @property
    def spare(self) -> Bool[Tensor, " m"]:
        """Copies, and idle candidates where the weights are explained."""
        return self.copy if self.needed is None else self.copy | self.idle

    @property
    def needed(self) -> int | None:
        """Candidates without copies and idle ones; None while the weights are not explained, and nothing is known."""
        explained = self.found.loss <= EXPLAINED
        return self.samples - self.copies - int(self.idle.sum()) if explained else None


@dataclass(frozen=True)
class Counts:
    """Estimates of n, None where there is none."""

    by_duplicates: int | None
    """n̂ without its copies, at the first n̂ that has any: the published way."""
    by_needed: int | None
    """Without copies and idle candidates, at the first n̂ that explains the weights."""
    certificate: int
    outcome: str

    def summary(self) -> dict[str, object]:
        return {
            "count_by_duplicates": self.by_duplicates,
            "count_by_needed": self.by_needed,
            "count_by_certificate": self.certificate,
            "count_outcome": self.outcome,
        }


def guess_samples(
    observation: Observation,
    guesses: Iterable[int],
    method: HeavyBall | None = None,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    cosine: float = COPY_COSINE,
    truth: Float[Tensor, "n d"] | None = None,
) -> Iterator[CountEstimate]:
    """One attack for each n̂, from the same seed. The truth is for the error alone."""
    features = observation.ridge
    for samples in guesses:
        if samples < 1:
            raise UsageError(f"expected guesses from 1, found {samples}")
        found = run_attack(observation.knowing(samples), method or HeavyBall(), seed=seed, limits=limits).reconstruction
        loss = SpanLoss(features, observation.weights, found.candidates.dtype, found.candidates.device)
        fit = loss.fit(found.candidates)
        copy = _copies(found, cosine)
        idle = (removal_costs(fit, loss).cpu() <= IDLE * max(fit.loss, 1e-12)) & ~copy
        error = None if truth is None else reconstruction_error(truth, found.candidates.to(truth.dtype))
        yield CountEstimate(samples, found, copy, idle, error)


def certified_samples(observation: Observation, *, seed: int = 0, limits: Limits | None = None) -> Reconstruction:
    """exhume's attack, which is not told n."""
    settings = AttackSettings(seed=seed, limits=limits or Limits())
    return run(prepare(observation, settings)).reconstruction


def estimate(guesses: Iterable[CountEstimate], certified: Reconstruction) -> Counts:
    tried = list(guesses)
    doubled = next((guess for guess in tried if guess.copies), None)
    needed = (guess.needed for guess in tried)
    return Counts(
        by_duplicates=None if doubled is None else doubled.samples - doubled.copies,
        by_needed=next((count for count in needed if count is not None), None),
        certificate=len(certified.candidates),
        outcome=certified.outcome.value,
    )


def as_csv(guesses: Iterable[CountEstimate]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["guess", "loss", "held_out_loss", "copies", "idle", "iterations", "seconds", "error"])
    for guess in guesses:
        found = guess.found
        numbers = (found.loss, found.held_out_loss, guess.copies, int(guess.idle.sum()), found.iterations)
        writer.writerow([guess.samples, *numbers, round(found.seconds, 3), guess.error])
    return text.getvalue()


@dataclass(frozen=True, eq=False, repr=False)
class Arranged:
    """Candidates beside the samples they resemble most; copies are marked, and idle ones where that is known."""

    pictures: Float[Tensor, "m c h w"]
    marked: Bool[Tensor, " m"]


def arrange(candidates: Float[Tensor, "m d"], spare: Bool[Tensor, " m"], truth: Truth) -> Arranged:
    """Pictures of the candidates in the order of the samples that they are nearest to, with the better sign.

    A blend has no sample of its own and is shown at the average brightness of the data. Spare ones are marked.
    """
    rows = torch.nn.functional.normalize(candidates.to(truth.inputs.dtype), dim=1)
    cosines = rows @ torch.nn.functional.normalize(truth.inputs, dim=1).T
    nearest = cosines.abs().argmax(dim=1)
    signs = torch.where(cosines.gather(1, nearest[:, None]) < 0, -1.0, 1.0).to(rows)
    norms = truth.inputs.norm(dim=1)[nearest][:, None]
    scale = truth.preparation.scale.to(rows)
    order = nearest.argsort(stable=True)
    pictures = truth.preparation.to_pixels((rows * signs * norms)[order], scale[nearest][order])
    return Arranged(pictures, spare[order])


def _copies(found: Reconstruction, cosine: float) -> Bool[Tensor, " m"]:
    """All members of a group of duplicates but the one with the largest coefficient."""
    strength = found.coefficients.norm(dim=1)
    copy = torch.zeros(len(found.candidates), dtype=torch.bool)
    for group in duplicates(found.candidates, cosine):
        members = torch.tensor(group)
        copy[members] = True
        copy[members[strength[members].argmax()]] = False
    return copy
