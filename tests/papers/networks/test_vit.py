import math

import pytest
import torch

from exhume.errors import UsageError
from exhume.networks.head import find_head, split_at_head
from exhume_papers.networks.derivatives import push_forward
from exhume_papers.networks.vit import VisionTransformer


def vit(head_on: str = "tokens", seed: int = 0) -> VisionTransformer:
    stream = torch.Generator().manual_seed(seed)
    return VisionTransformer(
        side=8,
        patch=4,
        embedding=12,
        depth=2,
        heads=3,
        outputs=5,
        stream=stream,
        head_on=head_on,  # type: ignore[arg-type]
    )


def test_the_head_sees_all_tokens_or_the_class_token() -> None:
    rows = torch.randn(3, 192)
    assert vit().head.in_features == 4 * 12
    assert vit("class").head.in_features == 12
    assert vit()(rows).shape == vit("class")(rows).shape == (3, 5)


def test_patches_keep_the_order_channel_height_width() -> None:
    net = vit()
    image = torch.arange(192.0).reshape(3, 8, 8)
    patches = net._patches(image.reshape(1, -1))[0]
    assert torch.equal(patches[1], image[:, :4, 4:].flatten())
    assert torch.equal(patches[2], image[:, 4:, :4].flatten())


@pytest.mark.parametrize("head_on", ["tokens", "class"])
def test_samples_do_not_see_each_other_and_each_patch_matters(head_on: str) -> None:
    net, rows = vit(head_on).double(), torch.randn(4, 192, dtype=torch.float64)
    torch.testing.assert_close(net(rows)[1:2], net(rows[1:2]))
    row = rows[:1].clone().requires_grad_()
    (slopes,) = torch.autograd.grad(net(row)[0, 0], row)
    assert bool((slopes != 0).all())


def test_the_features_have_forward_derivatives() -> None:
    """The fused attention kernels have none."""
    net = vit().double().eval()
    rows, directions = torch.randn(2, 3, 192, dtype=torch.float64)
    features = split_at_head(net, find_head(net), rows)
    with torch.no_grad():
        moved = push_forward(features, rows, directions)
        difference = (features(rows + 1e-6 * directions) - features(rows - 1e-6 * directions)) / 2e-6
    torch.testing.assert_close(moved, difference, atol=1e-7, rtol=1e-6)


def test_weights_come_from_the_stream_alone() -> None:
    torch.manual_seed(1)
    first = vit()
    torch.manual_seed(2)
    second = vit()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert first.embed.weight.std().item() == pytest.approx(1 / math.sqrt(48), rel=0.1)


def test_sizes_that_do_not_fit_are_one_line() -> None:
    stream = torch.Generator()
    with pytest.raises(UsageError, match="divides the side of 8 pixels, found 3"):
        VisionTransformer(8, 3, 12, 1, 3, 2, stream)
    with pytest.raises(UsageError, match="5 heads divide evenly, found 12"):
        VisionTransformer(8, 4, 12, 1, 5, 2, stream)
    with pytest.raises(UsageError, match="below 1"):
        VisionTransformer(8, 4, 12, 0, 3, 2, stream)
