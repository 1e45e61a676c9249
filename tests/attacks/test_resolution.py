import math

import pytest
import torch

from exhume.attacks.prior.resolution import Resolution, expected_cosines, free_numbers, ladder, last_useful, trust

RUNGS = [2, 4, 6]


def test_a_ladder_rises_to_all_frequencies() -> None:
    for d in (5, 12, 13, 300, 3072):
        rungs = ladder(d)
        assert rungs[-1] == d
        assert rungs == sorted(set(rungs))


def test_expected_cosines_follow_from_the_posterior_of_each_coordinate() -> None:
    candidates = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spread = torch.rand(3, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 10
    found = expected_cosines(candidates, spread, RUNGS)
    for i in range(3):
        total = float(candidates[i].square().sum())
        kept = max(0.0, total - float(spread[i].sum()))
        for place, rung in enumerate(RUNGS):
            signal = float(candidates[i, :rung].square().sum()) / total * kept
            error = float(spread[i, :rung].sum())
            assert float(found[place, i]) == pytest.approx(math.sqrt(signal / (signal + error)))


def test_a_candidate_without_a_coefficient_is_not_trusted() -> None:
    candidates = torch.ones(2, 6, dtype=torch.float64)
    cosines = expected_cosines(candidates, torch.tensor([[1e-3], [1.0]]).double().expand(2, 6), RUNGS)
    found = trust(RUNGS, cosines, [0.3, 0.2, 0.1])
    assert found.trusted == (6, 0)
    assert found.frequencies == 6
    assert found.confidence[0] > 0.5
    assert found.confidence[1] == 0


def test_frequencies_that_do_not_help_to_predict_are_trusted_for_nobody() -> None:
    assert last_useful(RUNGS, [0.5, 0.3, 0.299]) == 4
    assert last_useful(RUNGS, [0.5, 0.6, 0.7]) == 2
    sure = torch.full((3, 2), 0.99, dtype=torch.float64)
    assert trust(RUNGS, sure, [0.5, 0.3, 0.299]).trusted == (4, 4)


def test_the_whole_is_trusted_to_where_half_of_the_trusted_candidates_are() -> None:
    cosines = torch.tensor([[0.99, 0.99, 0.96, 0.5], [0.99, 0.96, 0.6, 0.4], [0.96, 0.94, 0.5, 0.3]])
    found = trust(RUNGS, cosines.double(), [0.3, 0.2, 0.1])
    assert found.trusted == (6, 4, 2, 0)
    assert found.frequencies == 4
    assert found.cosines == pytest.approx((0.99, 0.96, 0.6, 0.4))


def test_a_confidence_of_one_half_is_half_the_error_that_a_cosine_of_nine_tenths_allows() -> None:
    sure, half, doubtful = Resolution(2, (2, 2, 2), (1.0, 0.95, 0.9)).confidence
    assert (sure, half) == pytest.approx((1.0, 0.5))
    assert doubtful < 1 / 3


def test_free_numbers_are_those_that_the_equations_determine() -> None:
    curvature, variance = torch.eye(2, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    assert free_numbers(curvature, 1e-9, variance) == pytest.approx(10)
    assert free_numbers(curvature, 1.0, variance) == pytest.approx(5)
    assert free_numbers(curvature, 1e9, variance) == pytest.approx(0, abs=1e-6)
