from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.attacks.foundation.state import State, Step
from exhume.attacks.running.snapshots import Snapshot, SnapshotKeeper, load_snapshots, save_snapshots
from exhume.errors import ExhumeError
from exhume.files import write_tensors


def watch(keeper: SnapshotKeeper, iterations: range, rows: int = 2, d: int = 3) -> None:
    for iteration in iterations:
        step = Step(iteration, torch.full((rows, d), float(iteration)), 0.5**iteration, State({}, {}))
        keeper.note(step, 2.0 * iteration)


@settings(max_examples=15)
@given(st.integers(1, 400), st.integers(4, 20))
def test_however_long_an_attack_runs_its_snapshots_are_bounded_and_evenly_spread(length: int, most: int) -> None:
    keeper = SnapshotKeeper(most=most)
    watch(keeper, range(length))
    found = keeper.moments()
    assert min(length, most) >= len(found) >= min(length, most // 2)
    assert len(keeper.kept) < 2 * most
    assert found[0].iteration == 0
    assert [float(moment.places[0, 0]) for moment in found] == [moment.iteration for moment in found]
    gaps = {later.iteration - earlier.iteration for earlier, later in zip(keeper.kept, keeper.kept[1:], strict=False)}
    assert gaps <= {keeper.stride}
    assert length - 1 - keeper.kept[-1].iteration < keeper.stride


def test_large_candidates_are_kept_less_often_and_huge_ones_not_at_all() -> None:
    keeper = SnapshotKeeper(most_bytes=8 * 6 * 5)
    watch(keeper, range(100))
    assert 5 <= len(keeper.kept) < 10
    nothing = SnapshotKeeper(most_bytes=8 * 6 * 3)
    watch(nothing, range(100))
    assert nothing.moments() == ()
    empty = SnapshotKeeper()
    watch(empty, range(3), rows=0)
    assert empty.moments() == ()


def test_snapshots_are_copies() -> None:
    keeper, rows = SnapshotKeeper(), torch.ones(1, 2)
    keeper.note(Step(0, rows, 1.0, State({}, {})), 1.0)
    rows.zero_()
    assert keeper.moments()[0].places.tolist() == [[1.0, 1.0]]


def test_snapshots_come_back_from_their_file(tmp_path: Path) -> None:
    shots = tuple(Snapshot(index, 2.0 * index, 0.5**index, torch.full((2, 3), float(index))) for index in range(5))
    save_snapshots(shots, tmp_path / "s.safetensors")
    found = load_snapshots(tmp_path / "s.safetensors")
    assert [(shot.iteration, shot.passes, shot.loss) for shot in found] == [(i, 2.0 * i, 0.5**i) for i in range(5)]
    assert torch.equal(found[3].candidates, shots[3].candidates)
    assert load_snapshots(tmp_path / "none.safetensors") == ()
    write_tensors(tmp_path / "d.safetensors", "snapshots", {}, {"snapshots": [[1, 2.0, 3.0]]})
    with pytest.raises(ExhumeError, match="whole snapshots"):
        load_snapshots(tmp_path / "d.safetensors")


@settings(max_examples=15)
@given(st.integers(0, 150), st.integers(1, 60), st.integers(0, 5))
def test_a_keeper_that_is_restored_keeps_what_an_undisturbed_one_does(stop: int, more: int, back: int) -> None:
    """Also where the attack goes on from a little before the last iteration that was seen."""
    undisturbed, killed, resumed = SnapshotKeeper(), SnapshotKeeper(), SnapshotKeeper()
    watch(undisturbed, range(stop + more))
    watch(killed, range(stop))
    resumed.restore(killed.pages())
    watch(resumed, range(max(0, stop - back), stop + more))
    assert resumed.stride == undisturbed.stride
    assert [shot.iteration for shot in resumed.kept] == [shot.iteration for shot in undisturbed.kept]
    assert [shot.loss for shot in resumed.kept] == [shot.loss for shot in undisturbed.kept]
    for mine, other in zip(resumed.kept, undisturbed.kept, strict=True):
        assert torch.equal(mine.places, other.places)


def test_a_checkpoint_without_pages_or_with_those_of_the_first_form_begins_afresh() -> None:
    keeper = SnapshotKeeper()
    keeper.restore({})
    keeper.restore({"candidates.0": torch.ones(1, 2), "lines": torch.ones(1, 3), "stride": torch.tensor(4)})
    assert (keeper.kept, keeper.stride) == ([], 1)
