"""Evidence where a layer was attacked that reads patches of the inputs, or features of them: piece by piece."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.experiments.run import Truth
from exhume.metrics.errors import RECOVERED_DISTANCE
from exhume.metrics.pieces import SHARE, piece_errors, record_errors
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
    errors = piece_errors(reading(truth.inputs), found.candidates, directions_only)
    whole = record_errors(errors)
    against = None
    if control is not None:
        against = record_errors(piece_errors(reading(control), found.candidates, directions_only))
    order = whole.argsort(stable=True).tolist()
    rows = [_row(index, truth, float(whole[index]), against) for index in order]
    close = int((whole < RECOVERED_DISTANCE).sum())
    return Evidence(rows, None, close, _results(errors, whole, reading, against), directions_only, _control(against))


def compared(reading: Reading) -> str:
    """What distances are, for the page."""
    one, several = reading.noun
    if reading.pieces == 1:
        return f"Distances are between the {one} of a record and the {one} that came back, over its norm."
    return (
        f"Distances are between {several}, over their norms; that of a record is the one which {SHARE:.0%} of its "
        f"{reading.pieces} {several} keep below. Which {several} belong together is not told by the weights."
    )


def _row(index: int, truth: Truth, error: float, against: Tensor | None) -> dict[str, Any]:
    name = int(truth.class_index[index])
    return {
        "sample": index,
        "class": truth.class_names[name] if 0 <= name < len(truth.class_names) else None,
        "candidate": None,
        "distance": error,
        "recovered": error < RECOVERED_DISTANCE,
        "sign_flipped": False,
        "coefficient": None,
        "true_coefficient": None,
        "psnr": None,
        "closer_controls": None if against is None else int((against <= error).sum()),
    }


def _results(
    errors: Float[Tensor, "n v"], whole: Float[Tensor, " n"], reading: Reading, against: Tensor | None
) -> list[dict[str, Any]]:
    several = reading.noun[1]
    share = (whole < RECOVERED_DISTANCE).double().mean()
    of_control = None if against is None else float((against < RECOVERED_DISTANCE).double().mean())
    near = (errors < RECOVERED_DISTANCE).double().mean()
    lines = [
        ("recovered_fraction", "Samples recovered", share, 1.0, of_control, f"share whose {several} are"),
        ("error", f"Error of {several}", errors.mean(), 0.0, None, "mean distance over the norm, 1 where none is"),
    ]
    if reading.pieces > 1:
        lines.append(("recovered_pieces", f"{several.capitalize()} recovered", near, 1.0, None, "share of all of them"))
    keys = ("key", "name", "value", "best", "control", "meaning")
    return [dict(zip(keys, line, strict=True)) | {"value": float(line[2]), "chance": None} for line in lines]


def _control(against: Tensor | None) -> dict[str, Any] | None:
    if against is None:
        return None
    recovered = int((against < RECOVERED_DISTANCE).sum())
    error = float(against.mean())
    return {"samples": len(against), "recovered": recovered, "error": error, "closest": float(torch.min(against))}
