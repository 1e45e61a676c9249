"""The benchmark reports what happened, for better or worse."""

import dataclasses

import pytest

from exhume_papers.studies.bench import BenchCase, Timing, speedup, success_curve, time_attack

TINY = BenchCase(dim=12, samples=3, ratio=12.0)


@pytest.fixture(scope="module")
def ours() -> Timing:
    return time_attack(TINY, "split-newton")


def test_an_attack_that_gets_there_has_a_time_and_a_pass_count_to_the_target(ours: Timing) -> None:
    assert ours.error < 1e-3
    assert ours.seconds_to_target is not None
    assert ours.passes_to_target is not None
    assert 0 < ours.passes_to_target <= ours.passes
    assert [point[0] for point in ours.curve] == sorted(point[0] for point in ours.curve)
    assert len(ours.distances) == len(ours.coefficients) == 3


def test_an_attack_that_does_not_get_there_never_reached_the_target(ours: Timing) -> None:
    published = time_attack(TINY, "heavy-ball", iterations=2)
    assert published.seconds_to_target is None
    assert published.error > 0.05
    bound = speedup({"split-newton": ours, "heavy-ball": published})
    assert bound["speedup_is_lower_bound"]
    assert ours.seconds_to_target is not None
    assert bound["speedup"] == pytest.approx(published.seconds / max(ours.seconds_to_target, 1e-3))


def test_the_speedup_compares_times_to_the_target(ours: Timing) -> None:
    fast = dataclasses.replace(ours, seconds_to_target=2.0)
    slow = dataclasses.replace(ours, method="heavy-ball", seconds_to_target=100.0)
    found = speedup({"split-newton": fast, "heavy-ball": slow})
    assert found == {"speedup": 50.0, "speedup_is_lower_bound": False}
    lost = dataclasses.replace(ours, seconds_to_target=None)
    assert speedup({"split-newton": lost, "heavy-ball": slow})["speedup"] is None


def test_a_success_curve_tries_each_ratio_with_each_seed() -> None:
    trials = list(success_curve(TINY, (0.5, 12.0), 2, "split-newton", 10.0))
    assert [(trial.ratio, trial.seed) for trial in trials] == [(0.5, 0), (0.5, 1), (12.0, 0), (12.0, 1)]
    assert all(trial.timing.error < 0.01 for trial in trials if trial.ratio == 12)
    assert all(trial.timing.outcome != "recovered" for trial in trials if trial.ratio == 0.5)
