import math

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from exhume.metrics.errors import reconstruction_error
from exhume.metrics.matching import to_norm
from exhume_papers.studies.released_metric import released_error


def _rows(n: int, d: int, seed: int) -> torch.Tensor:
    stream = torch.Generator().manual_seed(seed)
    return to_norm(torch.randn(n, d, generator=stream, dtype=torch.float64), math.sqrt(d))


def test_it_is_the_sum_written_out() -> None:
    samples, candidates = _rows(4, 6, 0), _rows(5, 6, 1)
    cost = [[sum((abs(a) - abs(b)) ** 2 for a, b in zip(x, y, strict=True)) for y in candidates] for x in samples]
    rows, columns = linear_sum_assignment(torch.tensor(cost).numpy())
    naive = sum(math.sqrt(cost[i][j]) for i, j in zip(rows, columns, strict=True)) / (4 * math.sqrt(6))
    assert released_error(samples, candidates) == pytest.approx(naive)


def test_every_number_is_forgiven_its_own_sign_which_equation_12_does_not() -> None:
    samples = _rows(5, 40, 2)
    turned = samples * torch.where(torch.arange(40) % 2 == 0, 1.0, -1.0)
    assert released_error(samples, turned) == pytest.approx(0, abs=1e-12)
    assert reconstruction_error(samples, turned) > 0.5


def test_samples_without_a_candidate_count_one() -> None:
    samples = _rows(4, 6, 3)
    assert released_error(samples, samples[:1]) == pytest.approx(0.75)


def test_random_guesses_come_out_lower_than_by_equation_12() -> None:
    samples, guesses = _rows(20, 100, 4), _rows(20, 100, 5)
    assert 0.7 < released_error(samples, guesses) < 0.85
    assert reconstruction_error(samples, guesses) > 1.2
