"""Records that somebody has, ranked by how well they fit a head on a frozen extractor, with calibrated scores.

Two statistics say whether a record was trained on, and each fails where the other works:

- its part in what holds the head in place (`stationary.py`), where labels and loss are known; otherwise the *alignment*
  of its embedding with the change of the head (`alignment.py`), which needs many weights per training record;
- the *fit* of the head to it (`head_fit.py`), which decides everything after interpolation and little before.

Each is brought to units of its own spread among non-members, and the larger one is the score. It is calibrated by
non-members (`calibration.py`), as a whole: choosing the larger one costs nothing in validity. Without non-members the
part in what holds the head in place counts alone: members in the pool make its spread as large as they stand out.

Where training embeddings themselves were recovered, records that match one exactly come first (`exact_matches.py`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.probes.alignment import align
from exhume.attacks.probes.calibration import in_units_of_chance, p_values, q_values
from exhume.attacks.probes.embedding_span import EmbeddingSpan, embedding_span
from exhume.attacks.probes.exact_matches import Matches, Recovered, exact_matches, inside_span
from exhume.attacks.probes.head_fit import head_fit
from exhume.attacks.probes.stationary import MOST_RECORDS, Stationarity, stationarity
from exhume.errors import ExhumeError, UsageError
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.observation import Observation
from exhume.readings import Reading
from exhume.shown import Shown

FEWEST_NON_MEMBERS = 2
CALLED = 0.1
"""Records with q up to this are called training records: one in ten of them may be a false alarm."""


@dataclass(frozen=True, eq=False, repr=False)
class Probe:
    """A linear head on features that did not move while it was trained.

    `change`: W(T) − W(0), with the bias as the weights of a last feature that is always 1 if there is one (`constant`).
    `head`: W(T) itself, None if it is not known. `features`: None where only embeddings can be looked at. `read`: what
    a recovered layer reads of inputs, where that is not what the head reads.
    """

    change: Float[Tensor, "k p"]
    head: Float[Tensor, "k p"] | None = None
    features: RidgeFeatures | ModuleFeatures | None = None
    constant: bool = False
    read: Reading | None = None

    @classmethod
    def of(cls, observation: Observation) -> "Probe":
        features = observation.features
        constant = features.constant and features.chosen is None
        read = next((layer.reading for layer in observation.layers if layer.reading is not None), None)
        return cls(observation.weights, observation.published_head, features, constant, read)

    def pieces(self, rows: Float[Tensor, "m columns"], width: int, what: str) -> Float[Tensor, "m width"]:
        """What the recovered layer reads of records; rows that are embeddings already are taken as they are."""
        if rows.shape[1] == width:
            return rows.double()
        if self.read is not None and self.read.pieces == 1 and self.features is not None:
            return self.read(rows)[:, 0].double().cpu()
        if rows.shape[1] == width + 1 and bool((rows[:, -1] == 1).all()):  # a column for the bias
            return rows[:, :width].double()
        raise UsageError(f"expected embeddings of {width} numbers in {what}, found {rows.shape[1]} per record")

    def embed(self, rows: Float[Tensor, "m columns"], what: str) -> Float[Tensor, "m p"]:
        """Embeddings of inputs; rows that are embeddings already are taken as they are."""
        p = self.change.shape[1]
        if not torch.isfinite(rows).all():
            raise ExhumeError(f"expected finite numbers in {what}, found NaN or infinite ones")
        if self.features is not None and rows.shape[1] == self.features.d:
            return self.features(rows.to(self.features.dtype or rows.dtype)).double()
        if rows.shape[1] == p:
            return rows.double()
        if self.constant and rows.shape[1] == p - 1:
            return torch.cat([rows.double(), torch.ones(len(rows), 1, dtype=torch.float64)], dim=1)
        inputs = "" if self.features is None else f"inputs of {self.features.d} numbers or "
        raise UsageError(
            f"expected {inputs}embeddings of {p - self.constant} numbers in {what}, found {rows.shape[1]} per record"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Shown):
    """One entry a record, in the order in which they were given."""

    score: Float[Tensor, " m"]
    p_value: Float[Tensor, " m"] | None
    """None without non-members: scores then only say which record fits better than another."""
    q_value: Float[Tensor, " m"] | None
    alignment: Float[Tensor, " m"]
    """cos²ψ with the row space of the change, after whitening."""
    fit: Float[Tensor, " m"] | None
    """None where W(T), or the loss it was trained with, is not known."""
    non_member_score: Float[Tensor, " c"]
    ridge: float
    span: EmbeddingSpan
    matches: Matches | None = None
    """None where no training embeddings were recovered, and no record lies in their span to rounding."""
    stationary: Float[Tensor, " m"] | None = None
    """The part of each record in what holds the head in place; None without labels, or without the loss."""
    explained: float | None = None
    """The share of the weights that all records together hold in place: near 1 where training came to rest and all of
    its records are there."""

    def _lines(self) -> dict[str, str | int | float | None]:
        called = None if self.q_value is None else int((self.q_value <= CALLED).sum())
        return {
            "records": len(self.score),
            "non_members": len(self.non_member_score),
            f"called_at_q_{CALLED}": called,
            "least_p_value": None if self.p_value is None else float(self.p_value.min()),
            "exact_matches": None if self.matches is None else int(self.matches.exact.sum()),
            "span": self.span.rank,
            "explained": self.explained,
        }

    @property
    def order(self) -> list[int]:
        """Records from the likeliest training record down, exact matches before all others."""
        order = self.score.argsort(descending=True, stable=True)
        if self.matches is not None:
            order = order[self.matches.exact[order].int().argsort(descending=True, stable=True)]
        return [int(index) for index in order]

    @property
    def resolution(self) -> float | None:
        """The smallest p-value that so many non-members allow."""
        return 1 / (len(self.non_member_score) + 1) if len(self.non_member_score) else None


def rank_records(
    probe: Probe,
    records: Float[Tensor, "m columns"],
    non_members: Float[Tensor, "c others"] | None = None,
    loss: str | None = None,
    recovered: Recovered | None = None,
    labels: Float[Tensor, " m"] | None = None,
    non_member_labels: Float[Tensor, " c"] | None = None,
) -> Ranking:
    """Ranks records, given as inputs of the extractor or as embeddings.

    `non_members` are records of the same kind that were certainly not trained on. `loss`: what the head was trained
    with; None leaves the fit out. `recovered`: training embeddings that an attack on a hidden layer has brought back.
    `labels`: what the head was to say of each record, a class from 0 on or a number. Records that were not trained on
    have to be alike in all that enters a score, so labels count only where non-members have them too.
    """
    if len(records) == 0:
        raise UsageError("expected at least one record to rank, found none")
    if non_members is not None and len(non_members) < FEWEST_NON_MEMBERS:
        raise UsageError(f"expected at least {FEWEST_NON_MEMBERS} non-members, found {len(non_members)}")
    own = probe.embed(records, "the candidates")
    others = own[:0] if non_members is None else probe.embed(non_members, "the non-members")
    pool, m = torch.cat([own, others]), len(own)
    span = embedding_span(probe.change)
    alignment = align(span, pool)
    known = _labels(m, len(others), labels, non_member_labels)
    fit = None if probe.head is None or loss is None else head_fit(probe.head, pool, loss, known)
    held = _held_in_place(probe, pool, known, loss)
    reference = slice(m, None) if len(others) else slice(0, m)
    evidence = alignment.score if held is None else held.score
    score = in_units_of_chance(evidence, evidence[reference])
    if fit is not None and (held is None or len(others)):  # two units, where nobody says what chance is, are none
        score = torch.maximum(score, in_units_of_chance(fit, fit[reference]))
    p = p_values(score[:m], score[m:]) if len(others) else None
    return Ranking(
        score=score[:m],
        p_value=p,
        q_value=None if p is None else q_values(p),
        alignment=alignment.cosine_squared[:m],
        fit=None if fit is None else fit[:m],
        non_member_score=score[m:],
        ridge=alignment.ridge,
        span=span,
        matches=inside_span(span, own, others)
        if recovered is None
        else _matches(probe, records, non_members, recovered),
        stationary=None if held is None else held.score[:m],
        explained=None if held is None else held.explained,
    )


def _labels(
    m: int, others: int, labels: Float[Tensor, " m"] | None, non_member_labels: Float[Tensor, " c"] | None
) -> Float[Tensor, " pool"] | None:
    if labels is None or (others and non_member_labels is None):
        return None
    parts = [labels.double()] if non_member_labels is None else [labels.double(), non_member_labels.double()]
    known = torch.cat(parts)
    if len(labels) != m or len(known) != m + others:
        raise UsageError(f"expected one label for each of {m} candidates and {others} non-members, found others")
    if not torch.isfinite(known).all():
        raise ExhumeError("expected finite labels of the records, found NaN or infinite ones")
    return known


def _held_in_place(
    probe: Probe, pool: Float[Tensor, "m p"], labels: Float[Tensor, " m"] | None, loss: str | None
) -> Stationarity | None:
    if probe.head is None or labels is None or loss is None or len(pool) > MOST_RECORDS:
        return None
    start = probe.head.double() - probe.change.double()
    return stationarity(probe.head, pool, labels, loss, constant=probe.constant, initial=start)


def _matches(
    probe: Probe, records: Float[Tensor, "m columns"], others: Float[Tensor, "c others"] | None, recovered: Recovered
) -> Matches:
    width = recovered.embeddings.shape[1]
    known = None if others is None else probe.pieces(others, width, "the non-members")
    return exact_matches(probe.pieces(records, width, "the candidates"), recovered, known)
