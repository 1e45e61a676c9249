from itertools import permutations

import pytest
import torch

from exhume.frequencies import lowest
from exhume.metrics.low_resolution import low_resolution

SHAPE = (3, 4, 4)


def drawn(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, 48, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_what_is_wrong_above_the_resolution_does_not_count() -> None:
    samples = drawn(3, 0)
    coarse = torch.linalg.pinv(lowest(torch.eye(48, dtype=torch.float64), SHAPE, 10).T) @ lowest(samples, SHAPE, 10).T
    found = low_resolution(samples, -2 * coarse.T[[2, 0, 1]], SHAPE, 10)
    torch.testing.assert_close(found.cosines, torch.ones(3, dtype=torch.float64))
    assert found.recovered_fraction == 1
    assert low_resolution(samples, coarse.T, SHAPE, 48).recovered_fraction < 1


def test_the_pairs_are_those_of_the_best_assignment() -> None:
    samples, candidates = drawn(4, 1), drawn(5, 2)
    truth, found = lowest(samples, SHAPE, 6), lowest(candidates, SHAPE, 6)
    alike = torch.nn.functional.cosine_similarity(truth[:, None], found[None], dim=2).abs()
    best = max(sum(float(alike[i, j]) for i, j in enumerate(chosen)) for chosen in permutations(range(5), 4))
    assert float(low_resolution(samples, candidates, SHAPE, 6).cosines.sum()) == pytest.approx(best)


def test_a_sample_without_candidate_is_not_recovered() -> None:
    samples = drawn(3, 3)
    cosines = low_resolution(samples, samples[:1], SHAPE, 20).cosines
    assert cosines.tolist() == pytest.approx([1.0, 0.0, 0.0])


def test_samples_that_pass_for_each_other_are_counted() -> None:
    samples = drawn(4, 4)
    assert low_resolution(samples, samples, SHAPE, 48).lookalikes == 0
    samples[1] = samples[0] + 0.01 * samples[1]
    assert low_resolution(samples, samples, SHAPE, 48).lookalikes == pytest.approx(0.5)
    assert low_resolution(samples, samples, SHAPE, 1).lookalikes == 1
