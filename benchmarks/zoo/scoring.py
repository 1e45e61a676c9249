"""What came back, by the zoo's own measure: nothing here is exhume's, whose numbers it checks.

A record is *recovered* if a candidate, matched one to one, is closer than a tenth of the record's own norm, and closer
than the nearest control record. A control record counts the same way, with the records as its controls: candidates
close to it, and not to any record. A *call* is a candidate with a confidence of one half or more; it is *wrong* if it
is not within a tenth of any input that training saw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from skimage.metrics import structural_similarity
from torch import Tensor

CLOSE = 0.1
SURE = 0.5
RECOGNISED = 0.6  # SSIM from which on a person knows the picture
MOST_WINDOW = 7


@dataclass(frozen=True)
class Score:
    recovered: int
    median: float
    worst: float
    control: int
    candidates: int
    calls: int
    wrong_calls: int
    recognised: int | None
    """Pictures with an SSIM above 0.6 to their candidate; None for rows."""


def score(
    candidates: Tensor, confidence: Sequence[float], records: Tensor, control: Tensor, also: Tensor | None = None
) -> Score:
    """Errors are 1 for a record without a candidate, and at most 1."""
    rows, others = _rows(records), _rows(control)
    found = _rows(candidates) if len(candidates) else rows[:0]
    matched = match(rows, found)
    errors = _errors(rows, found, matched)
    close = _close(rows, others, errors)
    seen = rows if also is None else torch.cat([rows, _rows(also)])
    called = found[torch.tensor(confidence[: len(found)], dtype=torch.float64) >= SURE] if confidence else found[:0]
    return Score(
        recovered=int(close.sum()),
        median=float(errors.median()),
        worst=float(errors.max()),
        control=int(_close(others, rows, _errors(others, found, match(others, found))).sum()),
        candidates=len(found),
        calls=len(called),
        wrong_calls=int((relative(seen, called).amin(dim=0) >= CLOSE).sum()) if len(called) else 0,
        recognised=_recognised(records, found, matched) if records.ndim == 4 else None,
    )


def relative(rows: Tensor, found: Tensor) -> Tensor:
    """‖x_i − x^_j‖ / ‖x_i‖, by differences: squares would lose the small ones."""
    exact = torch.cdist(rows, found, compute_mode="donot_use_mm_for_euclid_dist")
    return exact / rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)


def match(rows: Tensor, found: Tensor) -> dict[int, int]:
    """One candidate for a record at most, least total error; an error above 1 is as bad as no candidate."""
    if not len(found):
        return {}
    pairs = linear_sum_assignment(relative(rows, found).clamp_max(1.0).numpy())
    return dict(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))


def _rows(inputs: Tensor) -> Tensor:
    return inputs.detach().cpu().double().flatten(start_dim=1)


def _errors(rows: Tensor, found: Tensor, matched: dict[int, int]) -> Tensor:
    errors = torch.ones(len(rows), dtype=torch.float64)
    if matched:
        distances = relative(rows, found)
        for row, candidate in matched.items():
            errors[row] = distances[row, candidate].clamp_max(1.0)
    return errors


def _close(rows: Tensor, others: Tensor, errors: Tensor) -> Tensor:
    return (errors < CLOSE) & (errors < relative(rows, others).amin(dim=1))


def _recognised(pictures: Tensor, found: Tensor, matched: dict[int, int]) -> int:
    count = 0
    for row, candidate in matched.items():
        true = pictures[row].double()
        span, window = float(true.max() - true.min()), min(MOST_WINDOW, *true.shape[1:])
        seen = found[candidate].reshape(true.shape).clamp(float(true.min()), float(true.max()))
        value = structural_similarity(
            true.numpy(), seen.numpy(), data_range=max(span, 1e-12), channel_axis=0, win_size=window - (window + 1) % 2
        )
        count += bool(value > RECOGNISED)
    return count
