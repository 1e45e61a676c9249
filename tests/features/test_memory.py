"""Memory that is used again: never while a view of it is alive."""

import gc

import pytest
import torch

from exhume.features import memory

LARGE = 2**20


@pytest.fixture(autouse=True)
def nothing_spare() -> None:
    memory.release()


def place(matrix: torch.Tensor) -> int:
    return matrix.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_matrix_has_the_shape_and_type_asked_for_and_can_be_filled(dtype: torch.dtype) -> None:
    matrix = memory.empty(3, LARGE, torch.zeros(0, dtype=dtype))
    assert matrix.shape == (3, LARGE)
    assert matrix.dtype == dtype
    assert matrix.is_contiguous()
    matrix.fill_(2)
    assert float(matrix.double().sum()) == 6 * LARGE


def test_memory_comes_back_when_the_last_view_is_gone() -> None:
    like = torch.zeros(0)
    matrix = memory.empty(2, LARGE, like)
    first, view = place(matrix), matrix[1, 5:9]
    del matrix
    gc.collect()
    view.fill_(7)
    other = memory.empty(2, LARGE, like)
    assert place(other) != first
    other.zero_()
    assert view.tolist() == [7] * 4
    del view
    gc.collect()
    assert place(memory.empty(2, LARGE, like)) == first


def test_a_block_is_not_wasted_on_a_matrix_of_less_than_half_its_size() -> None:
    like = torch.zeros(0)
    matrix = memory.empty(8, LARGE, like)
    first = place(matrix)
    del matrix
    small = memory.empty(3, LARGE, like)
    assert place(small) != first
    assert place(memory.empty(5, LARGE, like)) == first


def test_only_a_few_blocks_are_kept_and_all_can_be_released() -> None:
    like = torch.zeros(0)
    matrices = [memory.empty(1, LARGE, like) for _ in range(memory.SPARE_BLOCKS + 3)]
    del matrices
    assert len(memory._spare) == memory.SPARE_BLOCKS
    memory.release()
    assert memory._spare == []
