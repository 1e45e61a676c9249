"""p-values and q-values."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.attacks.probes.calibration import in_units_of_chance, p_values, q_values

numbers = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=12)


@settings(max_examples=40)
@given(numbers, numbers)
def test_a_p_value_counts_the_non_members_that_score_at_least_as_high(scores: list[float], others: list[float]) -> None:
    found = p_values(torch.tensor(scores), torch.tensor(others))
    naive = [(1 + sum(other >= score for other in others)) / (len(others) + 1) for score in scores]
    assert torch.allclose(found, torch.tensor(naive, dtype=torch.float64))


@settings(max_examples=40)
@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=12))
def test_q_values_are_those_of_benjamini_and_hochberg(values: list[float]) -> None:
    found = q_values(torch.tensor(values, dtype=torch.float64)).tolist()
    for p, q in zip(values, found, strict=True):
        naive = min(len(values) * other / sum(v <= other for v in values) for other in values if other >= p)
        assert abs(q - min(1.0, naive)) < 1e-12


def test_p_values_of_more_non_members_are_rarely_small() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = [p_values(torch.randn(5, generator=generator), torch.randn(39, generator=generator)) for _ in range(400)]
    found = torch.cat(draws)
    for level in (0.05, 0.2, 0.5):
        share = float((found <= level).double().mean())
        assert abs(share - level) < 0.03


def test_units_of_chance_put_the_median_at_zero_and_one_in_twenty_above_one() -> None:
    reference = torch.arange(101.0)
    found = in_units_of_chance(torch.tensor([50.0, 95.0, 140.0]), reference)
    assert torch.allclose(found, torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))
    assert in_units_of_chance(torch.tensor([3.0]), torch.full((5,), 2.0)).item() == 1.0
