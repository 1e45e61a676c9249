"""Evidence where a layer was attacked that reads patches of the inputs, or features of them: piece by piece."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.experiments.run import Truth
from exhume.metrics.errors import RECOVERED_DISTANCE
from exhume.metrics.pieces import SHARE, nearest_pieces, piece_errors, record_errors
from exhume.metrics.records import recovered
from exhume.observation import Observation
from exhume.readings import Reading
from exhume.reconstruction import Reconstruction
from exhume.report.evidence import Evidence


def reading_of(found: Reconstruction | None, observation: Observation) -> Reading | None:
    """What the candidates are pieces of; None where they are inputs."""
    if found is None or found.facts.get("reads", "inputs") == "inputs":
        return None
    return next((layer.reading for layer in observation.layers if layer.name == found.facts["layer"]), None)


def with_pieces(
    truth: Truth, found: Reconstruction, reading: Reading, control: Float[Tensor, "c d"] | None = None
) -> Evidence:
    """Records go through the reading, and their pieces are matched with the candidates."""
    directions_only = bool(found.facts.get("directions_only", False))
    pieces = reading(truth.inputs)
    errors = piece_errors(pieces, found.candidates, directions_only)
    whole, nearest, against = record_errors(errors), None, None
    if control is not None:
        others = reading(control)
        nearest = record_errors(nearest_pieces(pieces, others))
        far = record_errors(piece_errors(others, found.candidates, directions_only))
        against = _Against(far, recovered(far, record_errors(nearest_pieces(others, pieces))))
    close = recovered(whole, nearest)
    order = whole.argsort(stable=True).tolist()
    rows = [_row(index, truth, float(whole[index]), bool(close[index]), nearest) for index in order]
    results = _results(errors, close, reading, against)
    return Evidence(rows, None, int(close.sum()), results, directions_only, _control(against))


@dataclass(frozen=True, eq=False, repr=False)
class _Against:
    """Control records: their errors, and which of them came back."""

    errors: Float[Tensor, " c"]
    recovered: Bool[Tensor, " c"]


def compared(reading: Reading) -> str:
    """What distances are, for the page."""
    one, several = reading.noun
    if reading.pieces == 1:
        return f"Distances are between the {one} of a record and the {one} that came back, over its norm."
    return (
        f"Distances are between {several}, over their norms; that of a record is the one which {SHARE:.0%} of its "
        f"{reading.pieces} {several} keep below. Which {several} belong together is not told by the weights."
    )


def _row(index: int, truth: Truth, error: float, close: bool, nearest: Float[Tensor, " n"] | None) -> dict[str, Any]:
    name = int(truth.class_index[index])
    return {
        "sample": index,
        "class": truth.class_names[name] if 0 <= name < len(truth.class_names) else None,
        "candidate": None,
        "confidence": None,
        "distance": error,
        "recovered": close,
        "sign_flipped": False,
        "coefficient": None,
        "true_coefficient": None,
        "psnr": None,
        "nearest_control": None if nearest is None else float(nearest[index]),
    }


def _results(
    errors: Float[Tensor, "n v"], close: Bool[Tensor, " n"], reading: Reading, against: _Against | None
) -> list[dict[str, Any]]:
    several = reading.noun[1]
    share = close.double().mean()
    of_control = None if against is None else float(against.recovered.double().mean())
    near = (errors < RECOVERED_DISTANCE).double().mean()
    whole = record_errors(errors)
    lines = [
        ("recovered_fraction", "Samples recovered", share, 1.0, of_control, f"share whose {several} are"),
        ("median_relative_error", "Relative error, median", whole.median(), 0.0, None, "of a record, as said above"),
        ("worst_relative_error", "Relative error, worst", whole.max(), 0.0, None, "of a record, as said above"),
        ("error", f"Error of {several}", errors.mean(), 0.0, None, "mean distance over the norm, 1 where none is"),
    ]
    if reading.pieces > 1:
        lines.append(("recovered_pieces", f"{several.capitalize()} recovered", near, 1.0, None, "share of all of them"))
    keys = ("key", "name", "value", "best", "control", "meaning")
    return [dict(zip(keys, line, strict=True)) | {"value": float(line[2]), "chance": None} for line in lines]


def _control(against: _Against | None) -> dict[str, Any] | None:
    if against is None:
        return None
    return {
        "samples": len(against.errors),
        "recovered": int(against.recovered.sum()),
        "directions": None,
        "error": float(against.errors.mean()),
        "closest": float(torch.min(against.errors)),
    }
