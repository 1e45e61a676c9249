"""Every attack records what it kept out of its fit, and what it records is so."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from exhume.attacks.foundation.certificate import HELD_OUT_FRACTION
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running.loop import Attacked, run_attack
from exhume.attacks.running.snapshots import SnapshotKeeper
from exhume.observation import Observation
from exhume.reconstruction import load_reconstruction, save_reconstruction
from method_cases import CASES, disturbed, random_features


def attacked(observation: Observation, method: AnyMethod) -> tuple[Attacked, list[Tensor]]:
    """The attack, and its candidates on the way in its own coordinates."""
    keeper = SnapshotKeeper()
    return run_attack(observation, method, keeper=keeper), [moment.places for moment in keeper.kept]


@pytest.mark.parametrize("name", CASES)
def test_what_is_recorded_as_held_out_has_not_been_fitted(name: str, shapes_unchecked: None) -> None:
    """Other numbers there leave every step as it was, to the bit, unless the record says what was learned of them."""
    case = CASES[name]()
    before, way = attacked(case.observation, case.method)
    record = before.reconstruction.held_out
    assert record is not None
    if name == "informed, linear":
        assert record.what == "norms of samples"
        return
    assert len(record.places) == before.reconstruction.certificate.held_out_rows > 0
    after, other_way = attacked(disturbed(case, record.places), case.method)
    assert after.reconstruction.held_out_loss != before.reconstruction.held_out_loss, "the verdict reads them"
    silent = case.held == "units"  # whose verdict only chooses how samples are shown
    if not record.looked_at or silent:
        assert len(way) == len(other_way)
        assert all(torch.equal(*pair) for pair in zip(way, other_way, strict=True))
    if not record.looked_at:
        assert torch.equal(before.reconstruction.candidates, after.reconstruction.candidates)


@pytest.mark.parametrize("name", CASES)
def test_the_losses_along_the_way_are_those_of_the_verdict(name: str, shapes_unchecked: None) -> None:
    case = CASES[name]()
    keeper = SnapshotKeeper()
    result = run_attack(case.observation, case.method, keeper=keeper)
    found, moments = result.reconstruction, keeper.moments()
    assert found.held_out is not None
    assert found.held_out_loss is not None
    assert [iteration for iteration, _ in found.held_out.along] == [shot.iteration for shot in result.snapshots]
    resources = Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    opened = case.method.open_case(case.observation, found.seed, HELD_OUT_FRACTION, resources)
    polished = 0.05 if case.held == "units" else 0.0  # whose verdict polishes the samples before it looks
    for moment, (_, recorded) in list(zip(moments, found.held_out.along, strict=True))[-3:]:
        judged = opened.judge(moment.places).certificate.held_out_loss
        assert recorded == pytest.approx(judged, rel=polished, abs=0)


def test_nothing_of_an_attack_depends_on_who_looks_back_at_its_way() -> None:
    alone = run_attack(random_features(), HeavyBall(iterations=8))
    watched, _ = attacked(random_features(), HeavyBall(iterations=8))
    mine, other = alone.reconstruction, watched.reconstruction
    assert torch.equal(mine.candidates, other.candidates)
    assert (mine.passes, mine.certificate) == (other.passes, other.certificate)
    assert [line["loss"] for line in alone.trace] == [line["loss"] for line in watched.trace]


def test_a_record_comes_back_from_its_file(tmp_path: Path) -> None:
    found = attacked(random_features(), HeavyBall(iterations=5))[0].reconstruction
    save_reconstruction(found, tmp_path / "r.safetensors")
    read = load_reconstruction(tmp_path / "r.safetensors")
    assert read.held_out is not None
    assert found.held_out is not None
    assert torch.equal(read.held_out.places, found.held_out.places)
    assert (read.held_out.what, read.held_out.along) == (found.held_out.what, found.held_out.along)
    assert (read.given, read.image_shape) == (found.given, found.image_shape)
    assert repr(read.held_out) == "HeldOut(10 weights of the last layer)"
