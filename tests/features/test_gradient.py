import pytest
import torch
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.features.gradient import flattened, gradient_features, halfway
from exhume.features.module import ModuleFeatures


def small(outputs: int = 1) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, outputs)).double()


def rows(count: int = 3) -> Tensor:
    return torch.randn(count, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def explicit(module: nn.Module, row: Tensor) -> Tensor:
    found = torch.autograd.grad(module(row.reshape(1, 1, 3, 3)).sum(), list(module.parameters()))
    return torch.cat([part.reshape(-1) for part in found])


def test_the_features_are_the_gradients_of_the_output_in_all_parameters() -> None:
    module = small()
    features = gradient_features(module, (1, 3, 3), chunk=2)
    assert (features.d, features.p) == (9, sum(value.numel() for value in module.parameters()))
    torch.testing.assert_close(features(rows()), torch.stack([explicit(module, row) for row in rows()]))


def test_products_with_their_jacobian_are_those_of_finite_differences() -> None:
    features = gradient_features(small(), (1, 3, 3))
    point, stream = features.linearise(rows()), torch.Generator().manual_seed(1)
    moves = torch.randn(3, 9, generator=stream, dtype=torch.float64)
    tiny = 1e-6
    moved = (features(rows() + tiny * moves) - features(rows() - tiny * moves)) / (2 * tiny)
    torch.testing.assert_close(point.push(moves), moved, rtol=1e-6, atol=1e-8)
    cotangents = torch.randn(3, features.p, generator=stream, dtype=torch.float64)
    torch.testing.assert_close((point.pull(cotangents) * moves).sum(), (cotangents * moved).sum(), rtol=1e-6, atol=1e-8)


def test_the_weights_of_a_unit_make_a_group() -> None:
    features: ModuleFeatures = gradient_features(small(), (1, 3, 3))
    assert features.groups is not None
    assert features.groups.tolist() == [0] * 4 + [1] * 4 + [2, 3] + [4] * 8 + [5]


def test_several_outputs_are_refused() -> None:
    with pytest.raises(UsageError, match="one output"):
        gradient_features(small(2), (1, 3, 3))(rows())


def test_parameters_are_flattened_in_the_order_of_the_features() -> None:
    module = small()
    state = module.state_dict()
    expected = torch.cat([value.detach().reshape(-1) for value in module.parameters()])[None]
    torch.testing.assert_close(flattened(state, module), expected)
    doubled = {name: 3 * value for name, value in state.items()}
    torch.testing.assert_close(flattened(halfway(state, doubled), module), 2 * expected)
