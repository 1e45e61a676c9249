import torch
from torch import Tensor

from exhume_papers.networks.derivatives import push_forward


def test_a_push_forward_is_the_derivative_along_the_direction() -> None:
    matrix, point, direction = (torch.randn(*shape, dtype=torch.float64) for shape in ((3, 4), (4,), (4,)))
    moved = push_forward(lambda x: torch.sin(matrix @ x), point, direction)
    torch.testing.assert_close(moved, torch.cos(matrix @ point) * (matrix @ direction))


def test_a_dictionary_moves_in_all_its_tensors() -> None:
    def product(weights: dict[str, Tensor]) -> Tensor:
        return weights["a"] * weights["b"]

    moved = push_forward(product, {"a": torch.tensor(2.0), "b": torch.tensor(3.0)}, dict.fromkeys("ab", torch.ones(())))
    assert moved.item() == 5
