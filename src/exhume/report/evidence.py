"""What a reconstruction is worth, sample by sample where the truth is known, candidate by candidate where it is not."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.experiments.run import Truth
from exhume.experiments.scoring import matched_pixels
from exhume.metrics.errors import RECOVERED_DISTANCE, Evaluation, evaluate
from exhume.metrics.images import PSNR_CAP, ImageScores, chance_image_scores, image_scores
from exhume.metrics.matching import Matching
from exhume.metrics.records import Comparison, chance_of, compare, of_another, recovered
from exhume.observation import Observation
from exhume.picture_grid import from_rows
from exhume.reconstruction import Reconstruction

SMALLEST_SCORED_SIDE = 3
CHANCE_OF_A_ROW = 0.01
"""Records of a table that the most frequent cells of its columns would make: where there are more, exact rows do not
count by themselves."""


@dataclass(frozen=True, eq=False, repr=False)
class Pictures:
    """Pictures in the order of `rows`; `truth` is None where there is nothing to compare with."""

    found: Float[Tensor, "n c h w"]
    truth: Float[Tensor, "n c h w"] | None


@dataclass(frozen=True, eq=False, repr=False)
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
    directions: int | None = None
    """How many records came back up to their norm; None where norms cannot be known anyway."""
    sign_free: bool = False
    luck: float = 0.0
    """How likely rows of the records' kind would be as close to as many of them."""


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
    # the units of a layer that was attacked by itself tell signs apart
    sign_free = features.sign_blind and "layer" not in found.facts
    candidates = found.candidates.to(truth.inputs.dtype)

    def held(only: bool) -> Comparison:
        return compare(truth.inputs, candidates, against, directions_only=only, sign_free=sign_free)

    def held_control(only: bool) -> Comparison | None:
        if against is None:
            return None
        others = truth.inputs
        return compare(against, candidates, others, of_control=True, directions_only=only, sign_free=sign_free)

    against = None if control is None else control.to(candidates.dtype)
    own, other = held(directions_only), held_control(directions_only)
    if not directions_only and not sign_free:
        own, other = _with_exact_rows(truth, candidates, own, other, against)
    ways, other_ways = (None, None) if directions_only else (held(True), held_control(True))
    # pictures have the norm of their sample: they show directions, and so do rows where more of those came back
    turned = ways is not None and int(ways.recovered.sum()) > int(own.recovered.sum())
    shown = ways if ways is not None and turned else own
    evaluation = evaluate(truth.inputs, candidates, directions_only=directions_only)
    originals = recoveries = scores = seen = None
    if truth.image_shape is not None:
        originals = truth.preparation.to_pixels(truth.inputs, truth.preparation.scale)
        recoveries, paired = (
            matched_pixels(truth, found, pairs) if len(candidates) else torch.full_like(originals, 0.5)
            for pairs in (shown.matching, evaluation.matching)
        )
        if min(truth.image_shape[1:]) >= SMALLEST_SCORED_SIDE:
            seen, scores = image_scores(originals, recoveries), image_scores(originals, paired)
    order = shown.errors.argsort(stable=True)
    rows = [
        _sample_row(index, truth, found, own, shown.matching, seen)
        | {"direction": None if ways is None else float(ways.errors[index])}
        for index in order.tolist()
    ]
    pictures = None if originals is None or recoveries is None else Pictures(recoveries[order], originals[order])
    results = _results(
        (own, ways), (other, other_ways), evaluation, scores, _chance(truth, against, originals, scores), summary
    )
    counted, by_ways = (own, directions_only) if ways is None or own.recovered.any() else (ways, True)
    return Evidence(
        rows=rows,
        pictures=pictures,
        recovered=int(own.recovered.sum()),
        results=results,
        directions_only=directions_only,
        control=_control(other, other_ways),
        directions=None if ways is None else int(ways.recovered.sum()),
        sign_free=sign_free,
        luck=chance_of(counted, truth.inputs, len(candidates), directions_only=by_ways, sign_free=sign_free),
    )


def _with_exact_rows(
    truth: Truth,
    candidates: Float[Tensor, "m d"],
    own: Comparison,
    other: Comparison | None,
    control: Float[Tensor, "c d"] | None,
) -> tuple[Comparison, Comparison | None]:
    """Of tables: records whose cells all come back, however far they are in the numbers that the network reads.

    A row that chance would make, or that records on both sides have, is no sign of anything.
    """
    table = truth.table
    if table is None or candidates.shape[1] != table.width or len(table) * table.chance() > CHANCE_OF_A_ROW:
        return own, other
    found = [table.back(row) for row in candidates]
    trained = {table.back(row) for row in truth.inputs}
    others = set() if control is None else {table.back(row) for row in control}

    def exact(comparison: Comparison, records: Float[Tensor, "n d"]) -> Comparison:
        cells = [table.back(row) for row in records]
        same = [
            at >= 0 and found[at] == cells[place] and not (found[at] in trained and found[at] in others)
            for place, at in enumerate(comparison.matching.candidate.tolist())
        ]
        return replace(comparison, exact=torch.tensor(same))

    held = None if other is None or control is None else exact(other, control)
    return exact(own, truth.inputs), held


@dataclass(frozen=True)
class _Chance:
    """What another record of the kind would score in a candidate's place; None where nobody can say."""

    relative: float | None = None
    error: float | None = None
    scores: ImageScores | None = None


def _chance(
    truth: Truth,
    control: Float[Tensor, "m d"] | None,
    originals: Float[Tensor, "n c h w"] | None,
    scores: ImageScores | None,
) -> _Chance:
    """Random rows say little of images, which are all alike: there, the error's chance level is another image too."""
    other = of_another(truth.inputs, control)
    if other is None:
        return _Chance()
    apart = (truth.inputs.double() - other.double()).norm(dim=1)
    norms = truth.inputs.double().norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
    relative = float((apart / norms).median())
    if originals is None:
        return _Chance(relative)
    error = float(apart.mean()) / truth.inputs.shape[1] ** 0.5
    return _Chance(relative, error, None if scores is None else chance_image_scores(originals))


def _control(against: Comparison | None, ways: Comparison | None) -> dict[str, Any] | None:
    if against is None:
        return None
    return {
        "samples": len(against.errors),
        "recovered": int(against.recovered.sum()),
        "directions": None if ways is None else int(ways.recovered.sum()),
        "error": float(against.errors.mean()),
        "closest": float(against.errors.min()),
    }


def confidence_of(found: Reconstruction, candidate: int) -> float | None:
    """How sure unseen weights are of a candidate, from 0 to 1; None where no certificate was written."""
    known = found.certificate.confidence
    return known[candidate] if known else None


def without_truth(found: Reconstruction, image_shape: tuple[int, int, int] | None) -> Evidence:
    """Candidates by how sure unseen weights are of them, then by the size of their coefficient."""
    sizes = found.coefficients.double().norm(dim=1)
    sure = torch.tensor(found.certificate.confidence or (0.0,) * len(sizes), dtype=torch.float64)
    largest = sizes.argsort(descending=True, stable=True)
    order = largest[sure[largest].argsort(descending=True, stable=True)]
    rows = [
        {"candidate": index, "coefficient": float(sizes[index]), "confidence": confidence_of(found, index)}
        for index in order.tolist()
    ]
    pictures = None
    if image_shape is not None and len(found.candidates) > 0:
        pictures = Pictures(from_rows(found.candidates[order], image_shape), None)
    return Evidence(rows, pictures, None, [], False)


def _sample_row(
    index: int,
    truth: Truth,
    found: Reconstruction,
    own: Comparison,
    matching: Matching,
    scores: ImageScores | None,
) -> dict[str, Any]:
    """`matching` says which candidate is shown beside the sample."""
    candidate, distance = int(matching.candidate[index]), float(own.errors[index])
    matched = candidate >= 0
    name = int(truth.class_index[index])
    return {
        "sample": index,
        "class": truth.class_names[name] if 0 <= name < len(truth.class_names) else None,
        "candidate": candidate if matched else None,
        "confidence": confidence_of(found, candidate) if matched else None,
        "distance": distance,
        "recovered": bool(own.recovered[index]),
        "sign_flipped": matched and float(matching.sign[index]) < 0,
        "coefficient": float(found.coefficients[candidate].double().norm()) if matched else None,
        "true_coefficient": None if truth.coefficients is None else abs(float(truth.coefficients[index])),
        "psnr": min(float(scores.psnr[index]), PSNR_CAP) if scores is not None and matched else None,
        "nearest_control": None if own.nearest is None else float(own.nearest[index]),
    }


def _results(
    held: tuple[Comparison, Comparison | None],
    of_control: tuple[Comparison | None, Comparison | None],
    evaluation: Evaluation,
    scores: ImageScores | None,
    chance: _Chance,
    summary: dict[str, Any],
) -> list[dict[str, Any]]:
    """`held` and `of_control`: each as it is, and by directions alone."""
    results: list[dict[str, Any]] = []
    (own, ways), (against, against_ways) = held, of_control

    def row(key: str, name: str, value: float | None, chance: float | None, best: float | None, meaning: str) -> None:
        if value is not None:
            line = {"key": key, "name": name, "value": value, "chance": chance, "best": best, "meaning": meaning}
            results.append(line | {"control": controls.get(key)})

    controls: dict[str, float] = {}
    if against is not None:
        controls = {
            "recovered_fraction": float(against.recovered.double().mean()),
            "median_relative_error": float(against.errors.median()),
            "worst_relative_error": float(against.errors.max()),
        }
    if against_ways is not None:
        controls["directions_fraction"] = float(against_ways.recovered.double().mean())
    near = f"share with a candidate closer than {RECOVERED_DISTANCE} of the sample's norm"
    if own.nearest is not None:
        near += ", and closer than its nearest control record"
    if own.exact is not None and bool((own.exact & ~recovered(own.errors, own.nearest)).any()):
        near += "; or with every cell of its row exact"
    alike = "chance: random candidates" if chance.error is None else "chance: another image of the kind"
    row("recovered_fraction", "Samples recovered", float(own.recovered.double().mean()), None, 1.0, near)
    if ways is not None:
        turned = "the same with candidates brought to the sample's norm"
        row("directions_fraction", "Directions recovered", float(ways.recovered.double().mean()), None, 1.0, turned)
    errors, relative = own.errors, "distance over the sample's norm, 1 without a candidate; chance: another sample"
    row("median_relative_error", "Relative error, median", float(errors.median()), chance.relative, 0.0, relative)
    row("worst_relative_error", "Relative error, worst", float(errors.max()), None, 0.0, relative)
    error, by_chance = summary.get("error", evaluation.error), summary.get("chance_error", evaluation.chance_error)
    row(
        "error", "Reconstruction error", error, by_chance if chance.error is None else chance.error, 0.0,
        f"mean distance over the root of d, with the better sign; {alike}",
    )  # fmt: skip
    out = "what the candidates leave out of the samples' features"
    row("span_residual", "Span residual", summary.get("span_residual"), None, 0.0, out)
    if scores is not None and chance.scores is not None:
        psnr, ssim = (summary.get(key, getattr(scores, key)) for key in ("mean_psnr", "mean_ssim"))
        row("mean_psnr", "PSNR (dB)", psnr, chance.scores.mean_psnr, None, f"higher is better; {alike}")
        row("mean_ssim", "SSIM", ssim, chance.scores.mean_ssim, 1.0, f"higher is better; {alike}")
    return results
