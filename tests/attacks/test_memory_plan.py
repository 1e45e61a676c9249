"""What fits into a budget of memory: plans keep to it, and too small a one is refused with one that would do."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.activations import activation
from exhume.attacks.foundation.ranks import ALONE
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.running.prepare import require_room
from exhume.attacks.single_layer.memory_plan import FEWEST, PROCESS_BYTES, Sizes, least_bytes, room_for
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.observation import Knowledge, Observation
from exhume.units import parse_bytes

sizes = st.builds(
    Sizes,
    rows=st.integers(1, 10**7),
    d=st.integers(1, 12288),
    outputs=st.integers(1, 10),
    itemsize=st.sampled_from([4, 8]),
    samples=st.none() | st.integers(1, 1000),
    few_rows=st.just(True),
    ranks=st.integers(1, 4),
    coarse=st.booleans(),
)


def planned_bytes(asked: Sizes, rows: int, candidates: int) -> int:
    own = -(-rows // asked.ranks)
    row = asked.held_row_bytes + asked.output_row_bytes + asked.candidate_row_bytes * candidates
    return asked.fixed_bytes + own * row


@given(sizes, st.integers(1, 64))
def test_what_is_planned_takes_no_more_than_the_budget_that_is_enough(asked: Sizes, gibibytes: int) -> None:
    memory = gibibytes * 2**30
    if memory < least_bytes(asked):
        return
    room = room_for(asked, memory)
    assert 1 <= room.rows <= asked.rows
    assert room.candidates is not None
    assert room.candidates >= asked.candidates
    assert planned_bytes(asked, room.rows, asked.candidates) <= memory
    if room.candidates > max(FEWEST, asked.candidates):
        assert planned_bytes(asked, room.rows, room.candidates) <= memory


@given(sizes)
def test_all_rows_are_used_where_there_is_plenty_of_memory(asked: Sizes) -> None:
    room = room_for(asked, 2**60)
    assert (room.rows, room.held) == (asked.rows, True)


@given(sizes, st.integers(1, 63))
def test_more_memory_never_means_fewer_rows(asked: Sizes, gibibytes: int) -> None:
    assert room_for(asked, gibibytes * 2**30).rows <= room_for(asked, (gibibytes + 1) * 2**30).rows


def test_an_attack_that_needs_all_rows_streams_them_where_they_do_not_fit() -> None:
    asked = Sizes(rows=10**6, d=1000, outputs=1, itemsize=4, samples=10, few_rows=False)
    whole = asked.needed_bytes(asked.rows, held=True)
    assert whole > 4 * 10**9
    assert room_for(asked, whole).held
    assert not room_for(asked, whole - 1).held
    assert room_for(asked, whole - 1).rows == asked.rows
    assert least_bytes(asked) < whole / 4


def observed(p: int, d: int, samples: int | None) -> Observation:
    features = RidgeFeatures(DrawnRows(1, p, d), activation("relu"))
    return Observation(features, torch.ones(1, p), Knowledge(samples))


@pytest.mark.parametrize("method", [SplitNewton(), HeavyBall()], ids=["few rows", "all rows"])
def test_a_budget_that_is_too_small_is_refused_with_the_number_that_would_do(method: SplitNewton | HeavyBall) -> None:
    observation = observed(100_000, 50, 300)
    with pytest.raises(UsageError) as caught:
        require_room(observation, method, PROCESS_BYTES + 1, torch.float32, ALONE)
    message = str(caught.value)
    assert "\n" not in message
    assert "300 samples and p = 100,000, d = 50" in message
    would = re.search(r"give --memory (\w+)", message)
    assert would is not None
    require_room(observation, method, parse_bytes(would[1]), torch.float32, ALONE)
    with pytest.raises(UsageError, match="at least"):
        require_room(observation, method, parse_bytes(would[1]) - 2**20, torch.float32, ALONE)
    require_room(observation, method, None, torch.float32, ALONE)


def test_a_search_looks_at_no_more_candidates_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = torch.Generator().manual_seed(0)
    features = RidgeFeatures(DrawnRows(1, 3000, 8), activation("relu"))
    weights = torch.randn(1, 12, generator=stream) @ features(torch.randn(12, 8, generator=stream))
    observation = Observation(features, weights, Knowledge(None))
    monkeypatch.setattr("exhume.attacks.single_layer.memory_plan.FEWEST", 4)
    asked = Sizes(2850, 8, 1, 4, None, few_rows=True)
    row = asked.held_row_bytes + asked.output_row_bytes
    memory = asked.fixed_bytes + 100 * (row + 6 * asked.candidate_row_bytes)
    seen: list[int] = []
    method = replace(SplitNewton(), iterations=60)
    room = room_for(asked, memory)
    run_attack(
        observation,
        method,
        limits=Limits(memory_bytes=memory),
        watch=lambda progress: seen.append(len(progress.step.candidates)),
    )
    assert room.candidates is not None
    assert max(seen) <= room.candidates
