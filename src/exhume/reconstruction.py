"""All that an attack returns: candidates, coefficients, an outcome with advice, losses and counts."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.files import TensorFile, read_tensors, require_tensors, write_tensors
from exhume.held_out import HeldOut, read_held_out
from exhume.shown import Shown

if TYPE_CHECKING:
    from exhume.picture_grid import PictureGrid

KIND = "reconstruction"


class Outcome(Enum):
    """How an attack ended, decided without the truth. The text of a member says what to make of it."""

    RECOVERED = "recovered"
    PARTIAL = "partial"
    SPURIOUS = "spurious"
    NOT_CONVERGED = "not_converged"

    @property
    def advice(self) -> str:
        return _ADVICE[self]


_ADVICE = {
    Outcome.RECOVERED: "The candidates explain weights that were not fitted: treat the training data as exposed.",
    Outcome.PARTIAL: "The candidates explain part of the weights that were not fitted: treat the "
    "confident ones as exposed, and give the attack more time for the others.",
    Outcome.SPURIOUS: "The candidates explain the weights that were fitted but not those held out: the attack did not "
    "find the data as a whole, though single candidates may be right; with few held-out weights, or fewer weights than "
    "unknowns, it cannot decide.",
    Outcome.NOT_CONVERGED: "The attack did not fit the weights, or not closely enough, or too few are unseen "
    "to tell what of it is right: this is inconclusive, not safe; give it more time or another start.",
}


@dataclass(frozen=True)
class Certificate:
    """The verdict of weights that the attack never used.

    `held_out_loss` is ||θ_h − Âᵀ Φ_h(X̂)||² / ||θ_h||² on the held-out rows h: near the training loss for a genuine
    recovery, near 1 for candidates that have nothing to do with the data. None if no rows were held out.
    `confidence` is one number from 0 to 1 for each candidate; from 1/2 on a candidate is called recovered.
    `doubtful`: which candidates are known but for one thing, by what that is (`DOUBTS`).
    """

    outcome: Outcome
    held_out_loss: float | None
    held_out_rows: int
    confidence: tuple[float, ...]
    doubtful: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def doubts(self) -> dict[str, int]:
        """How many they are."""
        return {kind: len(those) for kind, those in self.doubtful.items()}


DOUBTS = {
    "sign": "known up to the sign",
    "parts": "known in parts, but not which parts belong together",
    "blend": "close to a sample, or the mean of two that are alike",
}
"""What may be left open of a candidate that the weights determine otherwise."""


@dataclass(frozen=True, eq=False, repr=False)
class Reconstruction(Shown):
    candidates: Float[Tensor, "m d"]
    coefficients: Float[Tensor, "m k"]
    method: str
    certificate: Certificate
    loss: float
    iterations: int
    passes: float
    seconds: float
    peak_memory_mb: float
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """What else the attack found out about the victim: further keys of the summary."""
    held_out: HeldOut | None = None
    """What the attack kept out of its fit, as it recorded it; None in files of the first form."""
    given: dict[str, str] = field(default_factory=dict)
    """What the attack was given and made use of (`attacks/foundation/given.py`); empty in files of the first form."""
    image_shape: tuple[int, int, int] | None = None
    """Channels, height and width of a candidate, where it is a picture."""
    request: dict[str, Any] = field(default_factory=dict)
    """The options that asked for the attack, where it was asked for by options."""
    pieces: "Reconstruction | None" = None
    """What was found before it was made into whole inputs, where an attack brings back pieces of them. Not stored."""

    @property
    def outcome(self) -> Outcome:
        return self.certificate.outcome

    @property
    def held_out_loss(self) -> float | None:
        return self.certificate.held_out_loss

    @property
    def inputs(self) -> Float[Tensor, "m d"]:
        """The recovered inputs: another name for the candidates."""
        return self.candidates

    @property
    def trusted(self) -> int:
        """How many candidates are called recovered."""
        return sum(value >= 0.5 for value in self.certificate.confidence)

    @property
    def layers_read(self) -> tuple[str, ...]:
        """The layers that the attack has read: the name of one, or "head", "first" (layer), "all"."""
        if "layer" in self.facts:
            return (str(self.facts["layer"]),)
        return tuple(self.facts.get("layers_read", ("head",)))

    def plot(self, image_shape: tuple[int, int, int] | None = None, columns: int = 10) -> "PictureGrid":
        """The first candidates as pictures, each from its smallest value to its largest.

        `image_shape` (channels, height, width) is asked for where the attack did not know it.
        """
        from exhume.picture_grid import MOST_PICTURES, from_rows, picture_grid, require_pictures

        shape = require_pictures(image_shape or self.image_shape, self.candidates.shape[1])
        return picture_grid([("candidates", from_rows(self.candidates[:MOST_PICTURES], shape))], columns)

    def _lines(self) -> dict[str, str | int | float | None]:
        return {
            "outcome": self.outcome.value,
            "candidates": f"{len(self.candidates):,} with {self.candidates.shape[1]:,} numbers each",
            "trusted": self.trusted,
            "loss": float(self.loss),
            "held_out_loss": self.held_out_loss,
            "method": self.method,
            "seconds": float(self.seconds),
        }

    def _remark(self) -> str:
        return self.outcome.advice

    def summary(self) -> dict[str, Any]:
        """The keys of summary.json that an attack answers for."""
        return {
            "method": self.method,
            "outcome": self.outcome.value,
            "advice": self.outcome.advice,
            "loss": self.loss,
            "held_out_loss": self.held_out_loss,
            "held_out_rows": self.certificate.held_out_rows,
            "samples_found": len(self.candidates),
            "samples_trusted": self.trusted,
            "iterations": self.iterations,
            "passes": self.passes,
            "seconds": round(self.seconds, 3),
            "peak_memory_mb": round(self.peak_memory_mb, 1),
            "seed": self.seed,
            "subspace": None,
            "subspace_rank": None,
            "prior": None,
            "resolution": None,
            **self.facts,
        }


def save_reconstruction(found: Reconstruction, path: Path) -> None:
    tensors = {"candidates": found.candidates, "coefficients": found.coefficients}
    meta = {item.name: getattr(found, item.name) for item in fields(found) if item.name not in tensors}
    if found.held_out is not None:
        tensors["held_out"], meta["held_out"] = found.held_out.places, found.held_out.described()
    meta["certificate"] = {**asdict(found.certificate), "outcome": found.outcome.value}
    write_tensors(path, KIND, tensors, meta)


def load_reconstruction(path: Path) -> Reconstruction:
    file = read_tensors(path, KIND)
    require_tensors(file, path, "candidates", "coefficients")
    meta = {name: value for name, value in file.meta.items() if name not in ("kind", "schema")}
    try:
        certificate = meta.pop("certificate")
        verdict = Certificate(
            Outcome(certificate["outcome"]),
            certificate["held_out_loss"],
            certificate["held_out_rows"],
            tuple(float(value) for value in certificate["confidence"]),
        )
        candidates, coefficients = file.tensors["candidates"], file.tensors["coefficients"]
        _check_tensors(candidates, coefficients, path)
        meta |= _record(meta, file, candidates.shape[1])
        _check_numbers(meta, verdict, len(candidates))
        return Reconstruction(candidates=candidates, coefficients=coefficients, certificate=verdict, **meta)
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise ExhumeError(f"expected a complete reconstruction in {path}, found it damaged at {problem}") from problem


def _record(meta: dict[str, Any], file: TensorFile, d: int) -> dict[str, Any]:
    """What the attack recorded of itself, which files of the first form do not have."""
    given, record, shape = meta.get("given", {}), meta.get("held_out"), meta.get("image_shape")
    if not isinstance(given, dict) or not all(isinstance(detail, str) for detail in given.values()):
        raise TypeError("given")
    if shape is not None and ([type(side) for side in shape] != [int] * 3 or math.prod(shape) != d or min(shape) < 1):
        raise TypeError("image_shape")
    held_out = None if record is None else read_held_out(record, file.tensors["held_out"])
    return {"held_out": held_out, "given": given, "image_shape": None if shape is None else tuple(shape)}


def _check_numbers(meta: dict[str, Any], verdict: Certificate, m: int) -> None:
    """Raises TypeError for what a reader would stumble over later."""
    numbers = {name: meta[name] for name in ("loss", "passes", "seconds", "peak_memory_mb")}
    whole = {name: meta[name] for name in ("iterations", "seed")} | {"held_out_rows": verdict.held_out_rows}
    parts = {name: meta.get(name, {}) for name in ("settings", "facts", "request")}
    if verdict.held_out_loss is not None:
        numbers["held_out_loss"] = verdict.held_out_loss
    wrong = [name for name, value in numbers.items() if type(value) not in (int, float) or not abs(value) < math.inf]
    wrong += [name for name, value in whole.items() if type(value) is not int or not 0 <= value < 2**63]
    wrong += [name for name, value in parts.items() if not isinstance(value, dict)]
    wrong += [] if isinstance(meta["method"], str) else ["method"]
    wrong += [] if verdict.confidence == () or len(verdict.confidence) == m else ["confidence"]
    wrong += [] if all(0 <= value <= 1 for value in verdict.confidence) else ["confidence"]
    if wrong:
        raise TypeError(wrong[0])


def _check_tensors(candidates: Tensor, coefficients: Tensor, path: Path) -> None:
    shapes = f"candidates of shape {list(candidates.shape)} and coefficients of shape {list(coefficients.shape)}"
    if candidates.ndim != 2 or coefficients.ndim != 2 or len(candidates) != len(coefficients):
        raise ExhumeError(f"expected m x d candidates and m x k coefficients in {path}, found {shapes}")
    for name, tensor in (("candidates", candidates), ("coefficients", coefficients)):
        if not tensor.is_floating_point() or not torch.isfinite(tensor).all():
            raise ExhumeError(f"expected finite numbers as {name} in {path}, found others; run the attack again")
