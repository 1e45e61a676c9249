"""What a reconstruction is worth, sample by sample where the truth is known, candidate by candidate where it is not."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.experiments.run import Truth
from exhume.experiments.scoring import matched_pixels
from exhume.metrics.errors import RECOVERED_DISTANCE, Evaluation, evaluate
from exhume.metrics.images import PSNR_CAP, ImageScores, chance_image_scores, image_scores
from exhume.observation import Observation
from exhume.picture_grid import from_rows
from exhume.reconstruction import Reconstruction

SMALLEST_SCORED_SIDE = 3


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in the order of `rows`; `truth` is None where there is nothing to compare with."""

    found: Float[Tensor, "n c h w"]
    truth: Float[Tensor, "n c h w"] | None


@dataclass(frozen=True, eq=False)
class Evidence:
    """`rows` is the table, the most exposed first. `recovered` and `results` say how it compares with chance.

    `control` counts the records that were not trained on and came back all the same; None where there are none.
    """

    rows: list[dict[str, Any]]
    pictures: Pictures | None
    recovered: int | None
    results: list[dict[str, Any]]
    directions_only: bool
    control: dict[str, Any] | None = None


def with_truth(
    truth: Truth,
    found: Reconstruction,
    observation: Observation,
    summary: dict[str, Any],
    control: Float[Tensor, "c d"] | None = None,
) -> Evidence:
    """Matches candidates with samples. Scores that an evaluation has left in the summary are taken from there."""
    features = observation.features
    # the rule of experiments.scoring: such weights cannot tell a row's norm from its coefficient
    directions_only = bool(found.facts.get("directions_only", features.norm_blind))
    candidates = found.candidates.to(truth.inputs.dtype)
    evaluation = evaluate(truth.inputs, candidates, directions_only=directions_only)
    matching = evaluation.matching
    close = matching.matched & (matching.distance < RECOVERED_DISTANCE)
    originals = recoveries = scores = None
    if truth.image_shape is not None:
        originals = truth.preparation.to_pixels(truth.inputs, truth.preparation.scale)
        recoveries = matched_pixels(truth, found, matching) if len(candidates) else torch.full_like(originals, 0.5)
        if min(truth.image_shape[1:]) >= SMALLEST_SCORED_SIDE:
            scores = image_scores(originals, recoveries)
    order = matching.distance.argsort(stable=True)
    against = None
    if control is not None:
        against = evaluate(control.to(candidates.dtype), candidates, directions_only=directions_only)
    rows = [_sample_row(index, truth, found, evaluation, scores, against) for index in order.tolist()]
    pictures = None if originals is None or recoveries is None else Pictures(recoveries[order], originals[order])
    chance = None if scores is None or originals is None else chance_image_scores(originals)
    results = _results(evaluation, scores, chance, summary, against)
    return Evidence(rows, pictures, int(close.sum()), results, directions_only, _control(against))


def _control(against: Evaluation | None) -> dict[str, Any] | None:
    if against is None:
        return None
    return {
        "samples": against.n,
        "recovered": round(against.recovered_fraction * against.n),
        "error": against.error,
        "closest": float(against.distances.min()),
    }


def without_truth(found: Reconstruction, image_shape: tuple[int, int, int] | None) -> Evidence:
    """Candidates by the size of their coefficient: a large one is well determined by the weights."""
    sizes = found.coefficients.double().norm(dim=1)
    order = sizes.argsort(descending=True, stable=True)
    rows = [{"candidate": index, "coefficient": float(sizes[index])} for index in order.tolist()]
    pictures = None
    if image_shape is not None and len(found.candidates) > 0:
        pictures = Pictures(from_rows(found.candidates[order], image_shape), None)
    return Evidence(rows, pictures, None, [], False)


def _sample_row(
    index: int,
    truth: Truth,
    found: Reconstruction,
    evaluation: Evaluation,
    scores: ImageScores | None,
    against: Evaluation | None,
) -> dict[str, Any]:
    matching = evaluation.matching
    candidate, distance = int(matching.candidate[index]), float(matching.distance[index])
    matched = candidate >= 0
    name = int(truth.class_index[index])
    return {
        "sample": index,
        "class": truth.class_names[name] if 0 <= name < len(truth.class_names) else None,
        "candidate": candidate if matched else None,
        "distance": distance,
        "recovered": matched and distance < RECOVERED_DISTANCE,
        "sign_flipped": matched and float(matching.sign[index]) < 0,
        "coefficient": float(found.coefficients[candidate].double().norm()) if matched else None,
        "true_coefficient": None if truth.coefficients is None else abs(float(truth.coefficients[index])),
        "psnr": min(float(scores.psnr[index]), PSNR_CAP) if scores is not None and matched else None,
        "closer_controls": None if against is None else int((against.distances <= distance).sum()),
    }


def _results(
    evaluation: Evaluation,
    scores: ImageScores | None,
    chance: ImageScores | None,
    summary: dict[str, Any],
    against: Evaluation | None,
) -> list[dict[str, Any]]:
    def row(key: str, name: str, value: float | None, chance: float | None, best: float | None, meaning: str) -> None:
        value = summary.get(key, value)
        if value is not None:
            line = {"key": key, "name": name, "value": value, "chance": chance, "best": best, "meaning": meaning}
            results.append(line | {"control": controls.get(key)})

    controls: dict[str, float] = {}
    if against is not None:
        controls = {key: getattr(against, key) for key in ("recovered_fraction", "error", "signed_error")}
    results: list[dict[str, Any]] = []
    sign_free = summary.get("chance_error", evaluation.chance_error)
    near = f"share of the samples with a candidate closer than {RECOVERED_DISTANCE}"
    row("recovered_fraction", "Samples recovered", evaluation.recovered_fraction, 0.0, 1.0, near)
    row("error", "Reconstruction error", evaluation.error, sign_free, 0.0, "mean distance, the better sign counts")
    row(
        "signed_error", "Error with signs", evaluation.signed_error, evaluation.signed_chance_error, 0.0,
        "mean distance, a wrong sign counts as wrong",
    )  # fmt: skip
    row("span_residual", "Span residual", None, None, 0.0, "what the candidates leave out of the samples' features")
    if scores is not None and chance is not None:
        other = "chance: the score of another training image"
        row("mean_psnr", "PSNR (dB)", scores.mean_psnr, chance.mean_psnr, None, f"higher is better; {other}")
        row("mean_ssim", "SSIM", scores.mean_ssim, chance.mean_ssim, 1.0, f"higher is better; {other}")
    return results
