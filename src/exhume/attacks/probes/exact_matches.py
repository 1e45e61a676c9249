"""Records recognised by their embeddings, where training embeddings were recovered exactly.

A dense ReLU layer on a frozen extractor gives its training embeddings away one by one (`attacks/silent/`). A record was
trained on if its own embedding is one of them to rounding. No score and no calibration is needed: embeddings of other
records are nowhere near. Non-members, where there are any, are the check of that: a record is called only if it is ten
times closer than the closest of them.

The same holds of a span of training embeddings that is whole: those that were trained on lie in it to rounding.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.probes.embedding_span import EmbeddingSpan
from exhume.errors import UsageError
from exhume.reconstruction import Reconstruction

SURE = 0.5
ROUNDING = 1e-4  # of the norm: another machine computes embeddings a little differently
CLOSER = 10.0


@dataclass(frozen=True, eq=False, repr=False)
class Recovered:
    """Embeddings that are called recovered, and how far they are off at most, over their norms."""

    embeddings: Float[Tensor, "r c"]
    accuracy: float

    @classmethod
    def of(cls, found: Reconstruction) -> "Recovered":
        if "layer" not in found.facts:
            raise UsageError(f"expected embeddings recovered by silent-units, found a result of {found.method}")
        found = found.pieces or found
        sure = torch.tensor(found.certificate.confidence) >= SURE
        return cls(found.candidates[sure].double(), found.facts.get("expected_error") or 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Matches:
    """`distance`: to the nearest recovered embedding, or to the span, over the record's norm; infinite for none."""

    distance: Float[Tensor, " m"]
    exact: Bool[Tensor, " m"]


def exact_matches(
    records: Float[Tensor, "m c"], recovered: Recovered, non_members: Float[Tensor, "o c"] | None = None
) -> Matches:
    """
    >>> found = Recovered(torch.tensor([[3.0, 4.0]]), 1e-6)
    >>> exact_matches(torch.tensor([[3.0, 4.0], [3.0, 4.1]]), found).exact.tolist()
    [True, False]
    """
    distance = _nearest(records, recovered.embeddings)
    near = max(ROUNDING, 10 * recovered.accuracy)
    if non_members is not None and len(non_members):
        near = min(near, float(_nearest(non_members, recovered.embeddings).min()) / CLOSER)
    return Matches(distance, distance <= near)


def inside_span(
    span: EmbeddingSpan, records: Float[Tensor, "m p"], non_members: Float[Tensor, "o p"] | None = None
) -> Matches | None:
    """Records that lie in the span of the training embeddings to rounding; None where it shows none, or is not whole.

    A span of fewer dimensions than the change could have is all of that of the training embeddings, and holds them.
    """
    if span.rank in (len(span.singular_values), span.basis.shape[1]):
        return None

    def outside(rows: Float[Tensor, "m p"]) -> Float[Tensor, " m"]:
        return (1 - span.share(rows)).clamp_min(0).sqrt()

    distance, near = outside(records), ROUNDING
    if non_members is not None and len(non_members):
        near = min(near, float(outside(non_members).min()) / CLOSER)
    return Matches(distance, distance <= near) if bool((distance <= near).any()) else None


def _nearest(rows: Float[Tensor, "m c"], recovered: Float[Tensor, "r c"]) -> Float[Tensor, " m"]:
    exact = rows.double()
    if not len(recovered):
        return torch.full((len(rows),), torch.inf, dtype=torch.float64)
    apart = torch.cdist(exact, recovered.double(), compute_mode="donot_use_mm_for_euclid_dist").amin(dim=1)
    return apart / exact.norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
