"""Records of a user ranked against a run or a head: what goes into ranking.csv and summary.json.

The ranking itself knows no truth (`attacks/probes/ranking.py`). Where there is one (a victim that was made here, or a
file that marks its members), the ranking is held against it afterwards. Where the user has no non-members, the truth
also says which records are none, and half of these then calibrate.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from exhume.attacks.probes.embedding_span import NOT_DETERMINED
from exhume.attacks.probes.exact_matches import Recovered
from exhume.attacks.probes.ranking import CALLED, FEWEST_NON_MEMBERS, Probe, Ranking, rank_records
from exhume.data.records import Records
from exhume.errors import UsageError
from exhume.files import write_tensors, write_text
from exhume.metrics.detection import detection_rate, rate_interval, roc_auc

FEW_NON_MEMBERS = 20
FALSE_ALARMS = {"1": 0.01, "0_1": 0.001}
"""Shares of false alarms that have a rate, by their names in percent. Of less than 1,000 others 0.1 % is none."""
EXACTLY = "a record whose embedding equals a recovered one to rounding was trained on"
INSIDE = (
    "a record that lies in the span of the training embeddings to rounding was trained on, or is a mixture of records "
    "that were"
)
RANKING_FILE, SPAN_FILE = "ranking.csv", "span.safetensors"


@dataclass(frozen=True, eq=False, repr=False)
class RankedRecords:
    ranking: Ranking
    names: tuple[str, ...]
    members: Bool[Tensor, " m"] | None
    samples: int | None
    """n, if the attacker knows it."""
    recovered: int | None = None
    """Training embeddings that came back by themselves, where a hidden layer was attacked."""

    @property
    def called(self) -> int | None:
        q = self.ranking.q_value
        return None if q is None else int((q <= CALLED).sum())

    def summary(self) -> dict[str, Any]:
        """The keys of summary.json that a ranking answers for."""
        ranking = self.ranking
        values: dict[str, Any] = {
            "ranked": len(self.names),
            "rank_explained": ranking.explained,
            "rank_non_members": len(ranking.non_member_score),
            "rank_resolution": ranking.resolution,
            "rank_called": self.called,
            "rank_span": ranking.span.rank,
            "rank_weights_per_sample": self._weights_per_sample(),
            "rank_note": EXACTLY
            if self.recovered is not None
            else NOT_DETERMINED
            if ranking.matches is None
            else INSIDE,
        }
        if ranking.matches is not None:
            values |= {"rank_recovered": self.recovered, "rank_exact": int(ranking.matches.exact.sum())}
        return values | self._against_truth()

    def _weights_per_sample(self) -> float | None:
        span = self.ranking.span
        return span.rank * span.basis.shape[1] / self.samples if self.samples else None

    def _against_truth(self) -> dict[str, Any]:
        if self.members is None or not self.members.any():
            return {}
        others = torch.cat([self.ranking.score[~self.members], self.ranking.non_member_score])
        if len(others) == 0:
            return {"rank_members": int(self.members.sum())}
        scores = self.ranking.score[self.members]
        values: dict[str, Any] = {
            "rank_members": len(scores),
            "rank_others": len(others),
            "rank_auc": roc_auc(scores, others),
        }
        for percent, share in FALSE_ALARMS.items():
            rate = detection_rate(scores, others, share)
            values[f"rank_tpr_at_{percent}_percent"] = rate
            values[f"rank_tpr_at_{percent}_percent_interval"] = rate_interval(round(rate * len(scores)), len(scores))
        return values

    def as_csv(self) -> str:
        ranking, text = self.ranking, io.StringIO()
        columns = ["rank", "record", "score", "p_value", "q_value", "alignment", "fit", "stationary"]
        columns += [] if ranking.matches is None else ["exact"]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*columns, *([] if self.members is None else ["member"])])
        for place, index in enumerate(ranking.order, start=1):
            numbers = (
                ranking.score,
                ranking.p_value,
                ranking.q_value,
                ranking.alignment,
                ranking.fit,
                ranking.stationary,
            )
            cells = ["" if values is None else f"{float(values[index]):.6g}" for values in numbers]
            cells += [] if ranking.matches is None else [str(int(ranking.matches.exact[index]))]
            truth = [] if self.members is None else [int(self.members[index])]
            writer.writerow([place, self.names[index], *cells, *truth])
        return text.getvalue()

    def save(self, folder: Path) -> None:
        span = self.ranking.span
        write_text(folder / RANKING_FILE, self.as_csv())
        tensors = {"basis": span.basis, "singular_values": span.singular_values}
        write_tensors(folder / SPAN_FILE, "embedding-span", tensors, {"rank": span.rank, "note": NOT_DETERMINED})


def rank_against(
    probe: Probe,
    candidates: Records,
    non_members: Records | None = None,
    *,
    members: Bool[Tensor, " m"] | None = None,
    loss: str | None = None,
    samples: int | None = None,
    seed: int = 0,
    recovered: Recovered | None = None,
) -> RankedRecords:
    """Ranks the candidates. `members` says which of them were trained on, where that is known; it only chooses which
    others calibrate if no non-members are given, and is then left aside until the ranking is there."""
    if non_members is None and members is not None:
        chosen = _split_off(members, seed)
        kept = torch.ones(len(members), dtype=torch.bool)
        kept[chosen] = False
        candidates, non_members, members = candidates.part(kept), candidates.part(~kept), members[kept]
    ranking = rank_records(
        probe,
        candidates.rows,
        None if non_members is None else non_members.rows,
        loss,
        recovered,
        candidates.labels,
        None if non_members is None else non_members.labels,
    )
    found = None if recovered is None else len(recovered.embeddings)
    return RankedRecords(ranking, candidates.names, members, samples, found)


def _split_off(members: Bool[Tensor, " m"], seed: int) -> Tensor:
    """Half of the records that were not trained on, at random."""
    others = (~members).nonzero()[:, 0]
    count = len(others) // 2
    if count < FEWEST_NON_MEMBERS:
        raise UsageError(
            f"expected non-members to calibrate with, found {len(others)} records that were not trained on; "
            "give --non-members"
        )
    order = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
    return others[order[:count]]
