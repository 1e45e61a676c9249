"""Two released versions of a linear model: the record between them, read off the change, and what is said of it."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhume.auditing.named_records import table_options
from exhume.auditing.records import TableOptions, is_a_file, read_records
from exhume.auditing.versions_page import about, write_versions
from exhume.data.tables.table import Table, shown
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.truth import Truth
from exhume.files import SCHEMA, table_for_the_owner
from exhume.formats.linear_head import NODES, OF_VERSIONS, LinearHead, Scaler, head_of
from exhume.formats.reading import kind_of, read_contents
from exhume.metrics.errors import RECOVERED_DISTANCE
from exhume.metrics.matching import nearest_cosines
from exhume.metrics.records import Comparison, compare
from exhume.observing.linear_versions import LinearChange, between_linear_versions
from exhume.report.tables import HIDDEN, MOST_COLUMNS
from exhume.requests.audit import AuditRequest
from exhume.verdicts import Verdict

ARRAYS = ("safetensors", "torch")
AS_LOSS = {"signed-square": "square"}
ENOUGH = 0.9
"""The share of the change along one direction that one changed record leaves."""
METHOD = "two-linear-versions"


@dataclass(frozen=True, eq=False, repr=False)
class LinearAudit:
    """`held`: the records that were given against what was found; by directions alone where norms are not known."""

    request: AuditRequest
    change: LinearChange
    notes: tuple[str, ...]
    names: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    """What was found in the owner's units; rows of numbers where it is a direction."""
    held: Comparison | None
    ways: Comparison | None
    cosines: tuple[float, ...] | None
    alike: float | None
    """The largest cosine of a public record with one that was given: what chance would show."""
    seconds: float

    @property
    def recovered(self) -> int | None:
        return None if self.held is None else int(self.held.recovered.sum())

    @property
    def directions(self) -> int | None:
        return None if self.ways is None else int(self.ways.recovered.sum())

    @property
    def verdict(self) -> Verdict:
        if self.held is None or not max(self.recovered or 0, self.directions or 0):
            return Verdict.INCONCLUSIVE
        return Verdict.RECOVERED if (self.recovered or 0) >= 0.9 * len(self.held.errors) else Verdict.PARTLY_RECOVERED

    @property
    def sentence(self) -> str:
        many = len(self.change.rows)
        what = "the record" if self.change.whole else "the direction of the record"
        if many > 1:
            what = f"what {many} records span, and no record by itself,"
        if self.held is None:
            return (
                f"Inconclusive: {what} that changed between the versions can be computed from them, and nothing "
                "confirms it. Give the records between the versions as --truth."
            )
        total = len(self.held.errors)
        if self.verdict is Verdict.INCONCLUSIVE:
            known = self.held if self.change.whole else self.ways
            assert known is not None
            return (
                "Inconclusive: what can be computed from the change between the versions is at "
                f"{float(known.errors.min()):.2g} of the norm of the nearest of {total} given "
                f"record{'' if total == 1 else 's'}; below {RECOVERED_DISTANCE} it counts as recovered."
            )
        if self.recovered:
            return (
                f"{self.verdict.title}: {self.recovered} of {total} records that changed between the versions can be "
                "computed from them."
            )
        return f"{self.verdict.title}: {self.directions} of {total} records can be computed, up to the norm."

    @property
    def confidence(self) -> str:
        if self.cosines is None:
            return "Low: public records stand for the training records, and no record was given to compare with."
        shown_cosines = ", ".join(f"{value:.3f}" for value in self.cosines[:5])
        assert self.alike is not None
        return (
            f"Measured on the records that were given: their cosine with what was found is {shown_cosines}. The public "
            f"record that is most like one of them has {self.alike:.3f}."
        )

    @property
    def summary(self) -> dict[str, Any]:
        errors = None if self.held is None else self.held.errors
        return {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "confidence": self.confidence,
            "recovered": self.recovered,
            "records": None if errors is None else len(errors),
            "directions": self.directions,
            "directions_only": not self.change.whole,
            "cosines": self.cosines,
            "public_cosine": self.alike,
            "control": None,
            "error": None,
            "median_relative_error": None if errors is None else float(errors.median()),
            "worst_relative_error": None if errors is None else float(errors.max()),
            "samples_found": len(self.change.rows),
            "rank": len(self.change.rows) if self.change.counted else None,
            "layer": None,
            "method": METHOD,
            "penalty": self.change.penalty,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }


def audit_linear(request: AuditRequest) -> LinearAudit | None:
    """None where the newer version is no linear model: then it is audited as any other."""
    if request.against is None or request.model is not None or request.features is not None:
        return None
    if not (request.weights.is_file() and request.against.is_file()):
        return None
    began = time.monotonic()
    new, old = _head(request.weights), None
    if new is None:
        return None
    request.check()
    if request.what_if is not None:
        raise UsageError(f"expected no --what-if with two versions of a linear model, found {request.what_if!r}")
    if request.public is None or not is_a_file(request.public):
        raise UsageError(
            "expected --public DATA with two versions of a linear model, a file of records of the same kind that tell "
            f"how they vary, found {request.public or 'none'}"
        )
    old = _head(request.against)
    if old is None or old.weight.shape != new.weight.shape or old.classes != new.classes:
        raise ExhumeError(f"expected another version of the linear model in {request.against}, found another model")
    d = new.weight.shape[1]
    scaler = None if new.prepare is None else Scaler.of(new.prepare, d, request.weights)
    before = _in_units_of(scaler, old, request.against)
    how = table_options(request, scaler)
    public = read_records(Path(request.public), how=how)
    loss = AS_LOSS.get(new.loss or "square", new.loss or "square")
    known = None if new.penalty is None or (request.samples is None and new.penalty) else new.penalty
    penalty = None if known is None else known / (request.samples or 1)
    try:
        change = between_linear_versions(_tensors(new), before, public.inputs, loss, penalty)
    except torch.linalg.LinAlgError as problem:
        raise ExhumeError(
            f"expected public records in {request.public} as {request.weights} reads them, found numbers that have no "
            "second moments: too large, or not finite"
        ) from problem
    held = ways = cosines = alike = None
    if request.truth is not None:
        truth = _truth(request, how, public)
        control = None if request.control is None else _other(request.control, how, public)
        others = public.inputs if control is None else torch.cat([public.inputs, control])
        held, ways, cosines = _held_against(truth.inputs, change, others)
        alike = float(nearest_cosines(truth.inputs, public.inputs).max())
    names, cells = _in_owners_units(change, public.table, scaler, request)
    return LinearAudit(
        request,
        change,
        _notes(change, new, request, len(public.inputs), known=penalty is not None, scaled=scaler is not None),
        names,
        cells,
        held,
        ways,
        cosines,
        alike,
        time.monotonic() - began,
    )


def write_linear(done: LinearAudit, reveal: bool) -> Path:
    def write_records(path: Path) -> None:
        with table_for_the_owner(path) as table:
            table.writerows([done.names, *done.cells])

    content = _content(done, reveal)
    return write_versions(done.request.out, "linear_versions.html.jinja", content, done.summary, write_records)


def _head(path: Path) -> LinearHead | None:
    """A linear model of scikit-learn; or, of a file with one matrix and at most its bias, these."""
    kind = kind_of(path)
    if kind == "skops":
        contents = read_contents(path, kind)
        return head_of(contents, path, OF_VERSIONS) if any(True for _ in contents.objects_of(*OF_VERSIONS)) else None
    if kind == "onnx":
        contents = read_contents(path, kind)
        return head_of(contents, path) if any(True for _ in contents.objects_of(*NODES)) else None
    if kind not in ARRAYS:
        return None
    arrays = list(read_contents(path, kind).arrays.values())
    matrix = next((array for array in arrays if len(array.shape) == 2 and 0 not in array.shape), None)
    rest = [array for array in arrays if array is not matrix]
    if matrix is None or len(rest) > 1 or any(array.shape != matrix.shape[:1] for array in rest):
        return None
    weight, *bias = (np.array(array.read(), np.float64) for array in (matrix, *rest))
    if not all(np.isfinite(part).all() for part in (weight, *bias)):
        raise ExhumeError(f"expected finite weights in {path}, found NaN or infinity")
    return LinearHead(weight, bias[0] if bias else None, None, None)


def _tensors(head: LinearHead) -> tuple[Tensor, Tensor | None]:
    bias = None if head.bias is None else torch.from_numpy(np.array(head.bias, np.float64))
    return torch.from_numpy(np.array(head.weight, np.float64)), bias


def _in_units_of(scaler: Scaler | None, head: LinearHead, path: Path) -> tuple[Tensor, Tensor | None]:
    """The older version as a function of what the newer one reads, where each scales its inputs itself."""
    if (scaler is None) != (head.prepare is None):
        raise ExhumeError(f"expected both versions with a scaler or without one, found it in one of them ({path})")
    if scaler is None or head.prepare is None:
        return _tensors(head)
    own = Scaler.of(head.prepare, head.weight.shape[1], path)
    plain = head.weight / own.scale
    bias = np.zeros(len(plain)) if head.bias is None else head.bias
    if head.bias is None and not np.allclose(own.centre, scaler.centre):
        raise UsageError(f"expected intercepts with scalers that centre, found none in {path}")
    moved = bias - plain @ own.centre + plain @ scaler.centre
    return torch.from_numpy(plain * scaler.scale), None if head.bias is None else torch.from_numpy(moved)


def _truth(request: AuditRequest, how: TableOptions, public: Truth) -> Truth:
    assert request.truth is not None
    if not is_a_file(request.truth):
        raise UsageError(f"expected --truth as a file of rows, found {request.truth!r}")
    found = read_records(Path(request.truth), how=how, like=public)
    if found.inputs.shape[1] != public.inputs.shape[1]:
        raise UsageError(f"expected records of {public.inputs.shape[1]} numbers, found {found.inputs.shape[1]}")
    return found


def _other(name: str, how: TableOptions, public: Truth) -> Float[Tensor, "c d"]:
    if not is_a_file(name):
        raise UsageError(f"expected --control as a file of rows, found {name!r}")
    return read_records(Path(name), how=how, like=public).inputs


def _held_against(
    truth: Float[Tensor, "n d"], change: LinearChange, others: Float[Tensor, "c d"]
) -> tuple[Comparison, Comparison, tuple[float, ...]]:
    found = change.rows.to(truth.dtype)
    alone = len(found) == 1  # a basis of several records is none of them
    candidates = found if alone else found[:0]
    ways = compare(truth, candidates, others, directions_only=True, sign_free=not change.whole)
    held = compare(truth, candidates if change.whole else found[:0], others)
    basis = torch.linalg.qr(found.double().T).Q
    inside = (truth.double() @ basis).norm(dim=1) / truth.double().norm(dim=1).clamp_min(1e-300)
    return held, ways, tuple(round(value, 4) for value in inside.tolist())


def _in_owners_units(
    change: LinearChange, table: Table | None, scaler: Scaler | None, request: AuditRequest
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    rows = change.rows.double()
    if table is not None and table.width == rows.shape[1] and change.whole:
        back = tuple(tuple(map(shown, table.back(row))) for row in rows)
        return tuple(column.name for column in table.columns), back
    if scaler is not None and change.whole and request.scaling is None:
        rows = rows * torch.from_numpy(scaler.scale) + torch.from_numpy(scaler.centre)
    names = tuple(f"x{at}" for at in range(rows.shape[1]))
    return names, tuple(tuple(f"{value:.6g}" for value in row) for row in rows.tolist())


def _notes(
    change: LinearChange, head: LinearHead, request: AuditRequest, public: int, *, known: bool, scaled: bool
) -> tuple[str, ...]:
    many, notes = len(change.rows), []
    if change.counted:
        what = "one record was" if many == 1 else f"{many} records (or more, alike) were"
        notes.append(f"The change has {many} of {change.outputs} possible dimensions: {what} deleted or added.")
    else:
        notes.append(
            f"How many records changed is open; {change.share:.0%} of the change, as second derivatives weigh it, "
            "lies along one direction, which is taken for one record."
        )
        if change.share < ENOUGH:
            notes.append("That is little for one record: several changed, or the solver stopped early.")
    if head.loss is None:
        notes.append("The files do not tell the loss: the square is assumed.")
    elif head.loss == "squared-hinge":
        notes.append("Only a record inside the margin changes the weights of a squared hinge.")
    notes.append(
        f"What an attacker needs: both versions and records of the same kind ({public:,} public ones here). Public "
        "records that are unlike the training records make the result wrong."
    )
    if math.isclose(change.penalty, 0.0):
        notes.append("There is no penalty.")
    elif known:
        notes.append(f"The penalty is {change.penalty:.2g} per record, from the file and --samples.")
    else:
        notes.append(
            f"Nobody said the penalty: {change.penalty:.2g} per record fits best. --samples with a file that keeps its "
            "penalty (skops) would."
        )
    if not change.whole:
        notes.append(
            "Without intercepts the norm and the sign of a record are not known: what was found is a direction."
        )
    if scaled:
        notes.append("The files scale their inputs first: the records that were given went through the newer scaler.")
    return tuple(notes)


def _content(done: LinearAudit, reveal: bool) -> dict[str, Any]:
    errors = None if done.held is None else done.held.errors.tolist()
    return about(done.request, done.verdict, reveal) | {
        "answer": {Verdict.RECOVERED: "Yes.", Verdict.PARTLY_RECOVERED: "Yes, some of it."}.get(
            done.verdict, "Nobody knows yet."
        ),
        "sentence": done.sentence,
        "confidence": done.confidence,
        "notes": list(done.notes),
        "direction": not done.change.whole,
        "columns": list(done.names[:MOST_COLUMNS]),
        "rows": [[cell if reveal else HIDDEN for cell in row[:MOST_COLUMNS]] for row in done.cells],
        "given": None
        if errors is None or done.cosines is None
        else [
            {"record": at, "error": error, "cosine": cosine}
            for at, (error, cosine) in enumerate(zip(errors[:50], done.cosines[:50], strict=True))
        ],
    }
