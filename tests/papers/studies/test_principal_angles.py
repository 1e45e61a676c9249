import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume_papers.studies.principal_angles import principal_angles


@given(st.floats(1e-10, math.pi / 2))
def test_the_angle_of_two_lines_is_exact_however_small(angle: float) -> None:
    one = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
    two = torch.tensor([[math.cos(angle)], [math.sin(angle)], [0.0]], dtype=torch.float64)
    assert float(principal_angles(one, two)) == pytest.approx(angle, rel=1e-6, abs=1e-15)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 50))
def test_angles_are_those_of_the_cosines_where_these_are_accurate(r: int, s: int, seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    one, two = (torch.randn(8, count, generator=stream, dtype=torch.float64) for count in (r, s))
    cosines = torch.linalg.svdvals(torch.linalg.qr(one).Q.T @ torch.linalg.qr(two).Q).clamp(max=1)
    angles = principal_angles(one, two)
    assert len(angles) == s
    naive = torch.cat([torch.zeros(s - len(cosines), dtype=torch.float64), cosines.flip(0)])
    torch.testing.assert_close(angles.cos(), naive, atol=1e-6, rtol=0)


def test_the_basis_does_not_matter_and_a_subspace_of_it_has_no_angle() -> None:
    stream = torch.Generator().manual_seed(0)
    columns = torch.randn(9, 4, generator=stream, dtype=torch.float64)
    mixed = columns @ torch.randn(4, 4, generator=stream, dtype=torch.float64)
    assert float(principal_angles(columns, mixed).max()) < 1e-12
    assert float(principal_angles(columns, mixed[:, :2]).max()) < 1e-12
    wider = principal_angles(columns[:, :2], mixed)
    assert wider[:2].tolist() == pytest.approx([math.pi / 2] * 2)
