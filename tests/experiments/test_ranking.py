"""Rankings as they are written down."""

import csv
import io
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from exhume.attacks.probes.ranking import Probe
from exhume.data.records import Records
from exhume.errors import UsageError
from exhume.experiments.rank_request import RANK_KEYS
from exhume.experiments.ranking import rank_against


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def records(rows: Tensor) -> Records:
    return Records(rows, tuple(f"record {index}" for index in range(len(rows))))


TRAINED, OTHERS = drawn(8, 40, seed=1), drawn(100, 40, seed=2)
PROBE = Probe(drawn(8, 3, seed=3).T @ TRAINED)
CANDIDATES = records(torch.cat([TRAINED, OTHERS[:30]]))
MEMBERS = torch.arange(38) < 8


def test_the_table_lists_records_from_the_likeliest_down_with_all_their_numbers() -> None:
    ranked = rank_against(PROBE, CANDIDATES, records(OTHERS[30:]), members=MEMBERS)
    lines = list(csv.DictReader(io.StringIO(ranked.as_csv())))
    assert [line["rank"] for line in lines] == [str(place) for place in range(1, 39)]
    scores = [float(line["score"]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    assert {line["record"] for line in lines} == set(CANDIDATES.names)
    assert all(0 < float(line["p_value"]) <= float(line["q_value"]) <= 1 for line in lines)
    assert all(line["fit"] == "" for line in lines), "the head itself is not known here"
    assert sum(int(line["member"]) for line in lines[:8]) >= 7


def test_the_summary_holds_the_ranking_against_the_truth_only_where_there_is_one() -> None:
    told = rank_against(PROBE, CANDIDATES, records(OTHERS[30:]), members=MEMBERS, samples=8).summary()
    assert (told["ranked"], told["rank_non_members"], told["rank_members"], told["rank_span"]) == (38, 70, 8, 3)
    assert told["rank_resolution"] == pytest.approx(1 / 71)
    assert told["rank_weights_per_sample"] == pytest.approx(3 * 40 / 8)
    assert told["rank_auc"] > 0.95
    low, high = told["rank_tpr_at_1_percent_interval"]
    assert 0.4 < low < told["rank_tpr_at_1_percent"] <= high <= 1
    assert told["rank_tpr_at_0_1_percent"] <= told["rank_tpr_at_1_percent"]
    assert 6 <= told["rank_called"] <= 12
    untold = rank_against(PROBE, CANDIDATES, records(OTHERS[30:])).summary()
    assert untold.keys() == told.keys() - set(RANK_KEYS)
    assert untold["rank_called"] == told["rank_called"]
    assert "not determined" in untold["rank_note"]


def test_without_non_members_the_truth_splits_off_half_of_the_others() -> None:
    ranked = rank_against(PROBE, CANDIDATES, members=MEMBERS, seed=3)
    assert len(ranked.ranking.non_member_score) == 15
    assert ranked.members is not None
    assert (len(ranked.names), int(ranked.members.sum())) == (23, 8)
    assert rank_against(PROBE, CANDIDATES, members=MEMBERS, seed=3).names == ranked.names
    assert rank_against(PROBE, CANDIDATES, members=MEMBERS, seed=4).names != ranked.names
    with pytest.raises(UsageError, match="give --non-members"):
        rank_against(PROBE, records(TRAINED), members=torch.ones(8, dtype=torch.bool))


def test_the_span_is_saved_with_what_it_does_not_say(tmp_path: Path) -> None:
    rank_against(PROBE, CANDIDATES).save(tmp_path)
    header = "rank,record,score,p_value,q_value,alignment,fit,stationary\n"
    assert (tmp_path / "ranking.csv").read_text().startswith(header)
    with safe_open(tmp_path / "span.safetensors", framework="pt") as file:
        assert file.get_tensor("basis").shape == (3, 40)
        assert "not determined" in json.loads(file.metadata()["exhume"])["note"]
