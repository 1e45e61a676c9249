from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.activations import activation
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, Rows, hold, write_rows
from exhume.features.share import PACK, DealtRows, Share

D = 3
P = 5 * PACK + 70


@given(st.integers(1, 9), st.integers(0, 40 * PACK))
def test_shares_of_the_first_rows_are_all_of_them_and_differ_by_a_pack_at_most(size: int, rows: int) -> None:
    shares = [Share(rank, size) for rank in range(size)]
    numbers = torch.cat([share.numbers(rows) for share in shares])
    assert torch.equal(numbers.sort().values, torch.arange(rows))
    counts = [share.count(rows) for share in shares]
    assert counts == [len(share.numbers(rows)) for share in shares]
    assert max(counts) - min(counts) <= PACK


@given(st.integers(1, 5), st.integers(0, P), st.integers(0, P))
def test_a_share_of_fewer_rows_is_the_beginning_of_that_of_more(size: int, some: int, others: int) -> None:
    few, many = min(some, others), max(some, others)
    for rank in range(size):
        share = Share(rank, size)
        assert torch.equal(share.numbers(few), share.numbers(many)[: share.count(few)])


@pytest.mark.parametrize("kind", ["drawn", "held", "mapped"])
@pytest.mark.parametrize("threads", [1, 2])
def test_dealt_rows_are_those_of_the_whole_wherever_it_is_kept(kind: str, threads: int, tmp_path: Path) -> None:
    drawn = DrawnRows(seed=1, p=P, d=D, first=100)
    kept: dict[str, Rows] = {
        "drawn": drawn,
        "held": hold(drawn),
        "mapped": write_rows(drawn, tmp_path / "V.safetensors"),
    }
    whole = kept[kind]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rank in range(3):
            share = Share(rank, 3)
            rows = DealtRows(whole, share, 0, share.count(P))
            expected = drawn.block(0, P)[share.numbers(P)]
            assert torch.equal(rows.block(0, rows.p), expected)
            assert torch.equal(rows.part(100, rows.p).block(5, 200), expected[105:300])
            assert torch.equal(rows.part(10, 20).part(3, 8).block(0, 5), expected[13:18])
            assert rows.block(7, 7).shape == (0, D)
            assert torch.equal(hold(rows.part(0, 300)).values, expected[:300])
    finally:
        torch.set_num_threads(before)


def test_features_of_a_share_are_that_part_of_all_features() -> None:
    bias = torch.linspace(-1, 1, P)
    features = RidgeFeatures(DrawnRows(seed=2, p=P, d=D), activation("gelu"), bias)
    inputs = torch.randn(4, D, generator=torch.Generator().manual_seed(0))
    for rank in range(2):
        share = Share(rank, 2)
        own = share.of(features)
        torch.testing.assert_close(own(inputs), share.columns(features(inputs)))
        assert own.p == share.count(P)


def test_one_process_has_the_features_themselves() -> None:
    features = RidgeFeatures(DrawnRows(seed=2, p=P, d=D), activation("relu"))
    weights = torch.ones(2, P)
    assert Share().of(features) is features
    assert Share().columns(weights) is weights
