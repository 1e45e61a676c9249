import math

import pytest
import torch

from exhume.errors import UsageError
from exhume_papers.networks.resnet import ResNet


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_paper_s_network_leaves_7_by_7_positions_of_32_by_32_pixels() -> None:
    net = ResNet(side=32, channels=5, outputs=1, stream=stream())
    assert net.first.kernel_size == (28, 28)
    assert net.first.padding == (1, 1)
    assert net.head.in_features == 5 * 7 * 7
    assert all(parameter.ndim > 1 for parameter in net.parameters()), "no biases"
    assert len(net.blocks) == 4


def test_smaller_images_keep_7_by_7_positions_with_a_smaller_kernel() -> None:
    net = ResNet(side=16, channels=2, outputs=3, stream=stream())
    assert net.first.kernel_size == (12, 12)
    assert net(torch.randn(4, 768)).shape == (4, 3)
    assert ResNet(side=16, channels=2, outputs=1, stream=stream(), kernel=5, padding=0).head.in_features == 2 * 12 * 12


def test_the_forward_pass_is_the_published_formula() -> None:
    net = ResNet(side=8, channels=3, outputs=2, stream=stream(), kernel=4).double()
    rows = torch.randn(5, 192, dtype=torch.float64)
    convolve = torch.nn.functional.conv2d
    z = convolve(rows.reshape(5, 3, 8, 8), net.first.weight, padding=1)
    for block in net.blocks:
        inner = convolve(z, block.get_parameter("inner.weight"), padding=1).clamp_min(0)
        z = (z + convolve(inner, block.get_parameter("outer.weight"), padding=1)).clamp_min(0)
    torch.testing.assert_close(net(rows), z.reshape(5, -1) @ net.head.weight.T)


def test_weights_start_at_the_published_scales_and_follow_their_stream() -> None:
    net, same, other = (ResNet(16, 40, 4, stream(seed)) for seed in (1, 1, 2))
    assert net.first.weight.std().item() == pytest.approx(1 / math.sqrt(768), rel=0.02)
    assert net.blocks[0].get_parameter("inner.weight").std().item() == pytest.approx(1 / math.sqrt(360), rel=0.03)
    assert net.head.weight.std().item() == pytest.approx(1 / math.sqrt(40 * 49), rel=0.03)
    assert torch.equal(net.head.weight, same.head.weight)
    assert not torch.equal(net.head.weight, other.head.weight)


def test_a_kernel_that_does_not_fit_is_one_line() -> None:
    with pytest.raises(UsageError, match="kernel of 1 to 10 pixels for 8x8 images with padding 1, found 28"):
        ResNet(side=8, channels=1, outputs=1, stream=stream(), kernel=28)
    with pytest.raises(UsageError, match="found 0"):
        ResNet(side=4, channels=1, outputs=1, stream=stream())
    with pytest.raises(UsageError, match="positive"):
        ResNet(side=8, channels=0, outputs=1, stream=stream(), kernel=3)
