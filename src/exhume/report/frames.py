"""The recovery as it happened: snapshots of the candidates, held against what they became.

Nothing here was known to the attack. Each snapshot is matched with the true records (or with the final candidates,
where there are none) after the fact. What each leaves unexplained of the held-out weights is what the attack recorded.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.running.snapshots import Snapshot
from exhume.experiments.scoring import matched_pixels
from exhume.metrics.matching import Matching
from exhume.metrics.records import compare
from exhume.picture_grid import from_rows
from exhume.reconstruction import Reconstruction
from exhume.report.pictures import blurred, to_base64_png
from exhume.report.subject import Subject

MOST_STRIPS = 12
MOST_BARS = 60
THUMBNAIL_SIDE = 32
MOST_STRIP_CHARACTERS = 1_200_000


@dataclass(frozen=True, eq=False)
class Recovery:
    """`frames` in the order of the attack, the final result last; `strips` hold one picture a frame, side by side."""

    frames: list[dict[str, Any]]
    strips: list[dict[str, Any]]


def recovery(subject: Subject, rows: list[dict[str, Any]], reveal: bool) -> Recovery:
    """`rows` is the page's table, whose order the bars and strips follow."""
    found = subject.found
    if found is None or not subject.snapshots or (subject.truth is None and not len(found.candidates)):
        return Recovery([], [])  # without records the frames follow what was found in the end
    last = Snapshot(found.iterations, found.passes, found.loss, found.candidates)
    earlier = [snapshot for snapshot in subject.snapshots if snapshot.iteration < last.iteration]
    snapshots = [*earlier, last]
    recorded = {} if found.held_out is None else dict(found.held_out.along)
    unseen = [*(recorded.get(snapshot.iteration) for snapshot in earlier), found.held_out_loss]
    matchings = [_matched(subject, found, snapshot) for snapshot in snapshots]
    order = [row["sample" if subject.truth is not None else "candidate"] for row in rows]
    frames = [
        {
            "iteration": snapshot.iteration,
            "passes": snapshot.passes,
            "loss": snapshot.loss,
            "held_out_loss": loss,
            "candidates": len(snapshot.candidates),
            "error": float(matching.distance.median()) if subject.truth is not None else None,
            "distances": [float(f"{float(matching.distance[index]):.3g}") for index in order[:MOST_BARS]],
        }
        for snapshot, loss, matching in zip(snapshots, unseen, matchings, strict=True)
    ]
    return Recovery(frames, _strips(subject, found, snapshots, matchings, order, reveal))


def _matched(subject: Subject, found: Reconstruction, snapshot: Snapshot) -> Matching:
    samples = found.candidates.float() if subject.truth is None else subject.truth.inputs.float()
    candidates = snapshot.candidates.float()
    features = subject.observation.features
    only = bool(found.facts.get("directions_only", features.norm_blind))
    sign_free = features.sign_blind and "layer" not in found.facts
    return compare(samples, candidates, directions_only=only, sign_free=sign_free).matching


def _strips(
    subject: Subject,
    found: Reconstruction,
    snapshots: list[Snapshot],
    matchings: list[Matching],
    order: list[int],
    reveal: bool,
) -> list[dict[str, Any]]:
    pictures = [_pictures(subject, found, shot, matching) for shot, matching in zip(snapshots, matchings, strict=True)]
    if any(picture is None for picture in pictures):
        return []
    small = [_thumbnails(picture, reveal) for picture in pictures if picture is not None]
    strips: list[dict[str, Any]] = []
    weight = 0
    for place, index in enumerate(order[:MOST_STRIPS]):
        strip = to_base64_png(torch.cat([frame[index] for frame in small], dim=2))
        weight += len(strip)
        if weight > MOST_STRIP_CHARACTERS:
            break
        _, height, width = small[0][index].shape
        strips.append({"row": place, "image": strip, "width": width, "height": height})
    return strips


def _pictures(
    subject: Subject, found: Reconstruction, snapshot: Snapshot, matching: Matching
) -> Float[Tensor, "n c h w"] | None:
    """The candidate of each record as it was then."""
    shape = subject.observation.image_shape
    if shape is None:
        return None
    rows = snapshot.candidates.float()
    if subject.truth is not None and subject.truth.image_shape is not None:
        as_found = replace(found, candidates=rows, coefficients=torch.zeros(len(rows), 1))
        return matched_pixels(subject.truth, as_found, matching)
    rows = rows[matching.candidate.clamp_min(0)]
    return from_rows(rows * matching.sign.to(rows)[:, None] * matching.matched[:, None], shape)


def _thumbnails(pictures: Float[Tensor, "n c h w"], reveal: bool) -> Float[Tensor, "n c th tw"]:
    if not reveal:
        return blurred(pictures)
    _, _, height, width = pictures.shape
    shrink = max(height, width) / THUMBNAIL_SIDE
    if shrink <= 1:
        return pictures
    size = (max(1, round(height / shrink)), max(1, round(width / shrink)))
    return torch.nn.functional.adaptive_avg_pool2d(pictures.float(), size)
