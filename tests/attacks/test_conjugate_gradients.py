"""Conjugate gradients against a direct solution."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from exhume.attacks.foundation.conjugate_gradients import Stacked, conjugate_gradients

N = 12


def system(seed: int = 0) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    root = torch.randn(N, N, generator=stream, dtype=torch.float64)
    return root @ root.T + torch.eye(N, dtype=torch.float64), torch.randn(N, generator=stream, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Halves(Stacked):
    upper: Tensor
    lower: Tensor


def test_as_many_products_as_unknowns_solve_the_system() -> None:
    matrix, wanted = system()
    found = conjugate_gradients(lambda x: matrix @ x, wanted, 4 * N, 1e-26)
    assert found.settled
    torch.testing.assert_close(found.x, torch.linalg.solve(matrix, wanted))
    torch.testing.assert_close(found.left, wanted - matrix @ found.x, atol=1e-9, rtol=0)


def test_a_preconditioner_that_is_the_inverse_needs_one_product() -> None:
    matrix, wanted = system(1)
    inverse, seen = torch.linalg.inv(matrix), []

    def times(x: Tensor) -> Tensor:
        seen.append(x)
        return matrix @ x

    found = conjugate_gradients(times, wanted, 50, 1e-20, lambda left: inverse @ left)
    assert (found.settled, len(seen)) == (True, 1)


def test_tensors_that_belong_together_are_one_vector() -> None:
    matrix, wanted = system(2)

    def times(x: Halves) -> Halves:
        whole = matrix @ torch.cat([x.upper, x.lower])
        return Halves(whole[:5], whole[5:])

    found = conjugate_gradients(times, Halves(wanted[:5], wanted[5:]), 4 * N, 1e-26).x
    torch.testing.assert_close(torch.cat([found.upper, found.lower]), torch.linalg.solve(matrix, wanted))


@pytest.mark.parametrize("wanted", [torch.zeros(N), torch.full((N,), float("nan"))])
def test_nothing_to_solve_for_leaves_zeros(wanted: Tensor) -> None:
    found = conjugate_gradients(lambda x: x, wanted, 5, 0.0)
    assert torch.equal(found.x, torch.zeros(N))


def test_a_singular_direction_ends_it() -> None:
    found = conjugate_gradients(torch.zeros_like, torch.ones(N), 5, 0.0)
    assert torch.equal(found.x, torch.zeros(N))
    assert not found.settled
