"""Figures of recovered images."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from scipy.stats import binomtest
from torch import Tensor

from exhume.experiments.truth import Truth
from exhume.metrics.errors import RECOVERED_DISTANCE
from exhume.metrics.matching import Matching, match, to_norm
from exhume.reconstruction import Reconstruction
from exhume.report.figures import draw_pairs
from exhume_papers.catalogue.figure import EXACT, RELEASED, Figure, Part, PartResults, Scale, attack_name, shown

CONVERGED = 1e-7
"""Where the published attack ends by itself."""


@dataclass(frozen=True)
class PictureFigure(Figure):
    """True images above what was recovered of them, with the signs as the attack left them."""

    name: str
    title: str
    published: str
    rows_of: Callable[[Scale], Sequence[Part]]
    differs: Mapping[Scale, str] = field(default_factory=dict)

    def parts(self, scale: Scale) -> Sequence[Part]:
        return self.rows_of(scale)

    def draw(self, results: Sequence[PartResults], folder: Path) -> list[Path]:
        return [path for result in results for path in draw_runs(result, self.name, folder)]

    def findings(self, results: Sequence[PartResults]) -> list[str]:
        """A sentence a run, or where there are several seeds, one on the signs of all."""
        return [
            sentence
            for result in results
            for sentence in (
                [signs_sentence(result)]
                if len(result.rows) > 1
                else [picture_sentence(result, row) for row in result.rows]
            )
        ]


def draw_runs(result: PartResults, name: str, folder: Path) -> list[Path]:
    drawn = []
    for row in result.rows:
        run = result.folder(row)
        truth, found = run.truth(), run.reconstruction()
        if truth.image_shape is None:
            continue
        path = folder / f"{name}-{_slug(result.part.title)}-{row['method']}-seed{row['seed']}.png"
        draw_pairs(true_pixels(truth), recovered_pixels(truth, found), path)
        drawn.append(path)
    return drawn


def picture_sentence(result: PartResults, row: Mapping[str, Any]) -> str:
    flipped = wrong_signs(result, row)
    return (
        f"{result.part.title}, {attack_name(row)}: rho {shown(float(row['error']))} "
        f"({shown(float(row[RELEASED]))} in the released metric), "
        f"{round(float(row['recovered_fraction']) * int(row['n']))} of {row['n']} within 0.1 sqrt(d), "
        f"{flipped} with the wrong sign, {row['samples_found']} candidates, {row['outcome']}{_floor(row)}"
    )


def _floor(row: Mapping[str, Any]) -> str:
    """The loss at the true data, which explains the rest of the error where features drifted."""
    floor = float(row.get("floor") or 0.0)
    return f", floor of the loss {shown(floor)}" if floor > EXACT else ""


def signs_sentence(result: PartResults) -> str:
    """Negatives among the candidates that stand for a sample, over all seeds, with an interval for their share."""
    negative = sum(wrong_signs(result, row) for row in result.rows)
    close = sum(close_rows(result, row) for row in result.rows)
    converged = sum(float(row["loss"]) <= CONVERGED for row in result.rows)
    text = (
        f"{result.part.title}, {attack_name(result.rows[0])}, {len(result.rows)} seeds, {converged} to a loss of "
        f"{CONVERGED:g}: {negative} negatives among {close} candidates within 0.1 sqrt(d)"
    )
    if not close:
        return text
    interval = binomtest(negative, close).proportion_ci(0.95)
    return f"{text} ({100 * interval.low:.2g} to {100 * interval.high:.2g} % at 95 %)"


def close_rows(result: PartResults, row: Mapping[str, Any]) -> int:
    """How many candidates stand for a sample, whatever their sign."""
    return int((_matched(result, row).distance < RECOVERED_DISTANCE).sum())


def wrong_signs(result: PartResults, row: Mapping[str, Any]) -> int:
    """How many candidates that stand for a sample (within 0.1 sqrt(d), norms aside) are its negative."""
    matching = _matched(result, row)
    return int(((matching.sign < 0) & (matching.distance < RECOVERED_DISTANCE)).sum())


def _matched(result: PartResults, row: Mapping[str, Any]) -> Matching:
    run = result.folder(row)
    samples, found = run.truth().inputs, run.reconstruction()
    norm = math.sqrt(samples.shape[1])
    return match(to_norm(samples, norm), to_norm(found.candidates.to(samples.dtype), norm), sign_free=True)


def true_pixels(truth: Truth) -> Float[Tensor, "n c h w"]:
    return truth.preparation.to_pixels(truth.inputs, truth.preparation.scale)


def recovered_pixels(truth: Truth, found: Reconstruction) -> Float[Tensor, "n c h w"]:
    """The candidate of each sample as a picture, at the norm of the sample and with the sign that the attack left it.

    A sample without a candidate is shown as the mean of the data.
    """
    candidates = found.candidates.to(truth.inputs.dtype)
    matching = match(truth.inputs, candidates, sign_free=True)
    rows = candidates[matching.candidate.clamp_min(0)]
    lengths = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    rows = rows * matching.matched[:, None] * (truth.inputs.norm(dim=1, keepdim=True) / lengths)
    return truth.preparation.to_pixels(rows, truth.preparation.scale)


def _slug(title: str) -> str:
    """
    >>> _slug("CIFAR-10, n=20, p = 10dn")
    'cifar-10-n-20-p-10dn'
    """
    return "-".join("".join(letter if letter.isalnum() else " " for letter in title.lower()).split())
