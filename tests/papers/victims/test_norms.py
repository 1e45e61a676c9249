import pytest
import torch

from exhume_papers.victims.norms import common_norm

ROWS = torch.nn.functional.normalize(torch.randn(5, 9, generator=torch.Generator().manual_seed(0)), dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_on_the_sphere_have_the_norm_sqrt_d_to_the_last_bit(dtype: torch.dtype) -> None:
    assert common_norm(3 * ROWS.to(dtype)) == 3.0


def test_another_common_norm_is_found_and_norms_that_differ_are_not_one() -> None:
    assert common_norm(2 * ROWS) == pytest.approx(2, rel=1e-6)
    assert common_norm(torch.cat([ROWS, 1.001 * ROWS])) is None
    assert common_norm(torch.zeros(2, 9)) is None
