import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume_papers.victims.curvature import largest_eigenvalue


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 20))
def test_the_largest_eigenvalue_is_found_nearly_and_never_above(size: int, rank: int, seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    factor = torch.randn(size, rank, generator=stream, dtype=torch.float64)
    matrix = factor @ factor.T
    largest = float(torch.linalg.eigvalsh(matrix)[-1])
    found = largest_eigenvalue(lambda vector: matrix @ vector, torch.empty(size, dtype=torch.float64))
    assert 0.75 * largest <= found <= largest * (1 + 1e-9)


def test_few_products_are_enough_and_shapes_are_kept() -> None:
    products = []

    def product(vector: torch.Tensor) -> torch.Tensor:
        products.append(vector.shape)
        return vector * torch.arange(1.0, 601.0).reshape(200, 3) ** 2

    assert abs(largest_eigenvalue(product, torch.empty(200, 3)) / 600**2 - 1) < 0.02
    assert len(products) < 40
    assert set(products) == {(200, 3)}


def test_a_matrix_of_zeros_has_no_curvature() -> None:
    assert largest_eigenvalue(torch.zeros_like, torch.empty(4)) == 0
