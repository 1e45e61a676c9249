from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures, averaged_features, axis_groups, penultimate_features

M = 5


class ConvolutionalNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Flatten())
        self.head = nn.Linear(12, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))


class TokenNet(nn.Module):
    """Attention by torch's own layer, whose fused kernels cannot be differentiated twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True, activation="gelu")
        self.head = nn.Linear(12, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(tokens).flatten(1))


SHAPES: dict[Callable[[], nn.Module], tuple[int, ...]] = {ConvolutionalNet: (2, 4, 4), TokenNet: (3, 4)}


def features_of(kind: Callable[[], nn.Module], bias: bool = False, chunk: int = 64) -> ModuleFeatures:
    torch.manual_seed(3)
    return penultimate_features(kind().double(), "head", SHAPES[kind], bias=bias, chunk=chunk)


def rows(features: ModuleFeatures, seed: int) -> Tensor:
    return torch.randn(M, features.d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense_jacobians(features: ModuleFeatures, inputs: Tensor) -> list[Tensor]:
    """The naive twin: p backward sweeps for each row by itself."""
    return [torch.autograd.functional.jacobian(lambda x: features.evaluate(x[None])[0], row) for row in inputs]


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("chunk", [1, 2, 64])
def test_products_are_those_of_the_dense_jacobian_whatever_the_chunk(kind: Callable[[], nn.Module], chunk: int) -> None:
    features = features_of(kind, bias=True, chunk=chunk).part(torch.tensor([12, 3, 0, 7]))
    inputs, directions = rows(features, 0), rows(features, 1)
    cotangents = rows(features, 2)[:, : features.p]
    jacobians = dense_jacobians(features, inputs)
    point = features.linearise(inputs)
    for _ in range(2):  # the record serves more than one product
        pushed, pulled = point.push(directions), point.pull(cotangents)
        expected = torch.stack([jacobian @ row for jacobian, row in zip(jacobians, directions, strict=True)])
        torch.testing.assert_close(pushed, expected)
        expected = torch.stack([jacobian.T @ row for jacobian, row in zip(jacobians, cotangents, strict=True)])
        torch.testing.assert_close(pulled, expected)
    torch.testing.assert_close(point.values, features(inputs))
    assert not pushed.requires_grad
    assert not pulled.requires_grad


@pytest.mark.parametrize("kind", SHAPES)
def test_features_are_what_the_head_reads_and_chunks_do_not_change_them(kind: Callable[[], nn.Module]) -> None:
    torch.manual_seed(3)
    network = kind().double()
    features = features_of(kind, bias=True, chunk=2)
    inputs = rows(features, 0)
    head = network.get_submodule("head")
    assert isinstance(head, nn.Linear)
    weights = torch.cat([head.weight, head.bias[:, None]], dim=1)
    outputs = network.eval()(inputs.reshape(M, *SHAPES[kind]))
    torch.testing.assert_close(features(inputs) @ weights.T, outputs)
    torch.testing.assert_close(features(inputs), replace(features, chunk=64)(inputs))


def test_features_follow_neither_the_module_nor_its_mode_afterwards() -> None:
    torch.manual_seed(3)
    network = ConvolutionalNet().double().train()
    features = penultimate_features(network, "head", (2, 4, 4))
    inputs = rows(features, 0)
    before = features(inputs)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert torch.equal(features(inputs), before)
    assert before.abs().max() > 0
    assert isinstance(network.head, nn.Linear), "the module is left as it was"


def test_single_precision_inputs_are_mapped_in_single_precision() -> None:
    features = features_of(ConvolutionalNet)
    inputs = rows(features, 0)
    single = features(inputs.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), features(inputs), atol=1e-5, rtol=1e-5)


def test_whole_groups_are_held_out() -> None:
    features = replace(features_of(ConvolutionalNet), groups=axis_groups((3, 2, 2), 0))
    held = features.held_out(0.3, torch.Generator().manual_seed(0))
    assert len(held) == 4
    channel = int(held[0]) // 4
    assert held.tolist() == list(range(4 * channel, 4 * channel + 4))
    part = features.part(held)
    inputs = rows(features, 0)
    assert part.p == 4
    assert part.groups is not None
    assert part.groups.tolist() == [channel] * 4
    torch.testing.assert_close(part(inputs), features(inputs)[:, held])
    assert len(features.held_out(1.0, torch.Generator().manual_seed(0))) == 8, "one group is left"


def test_a_part_of_a_part_counts_from_the_part() -> None:
    features = features_of(ConvolutionalNet)
    inputs = rows(features, 0)
    part = features.part(slice(2, 9)).part(torch.tensor([1, 4]))
    torch.testing.assert_close(part(inputs), features(inputs)[:, [3, 6]])


def test_averaged_features_are_the_mean_and_so_are_their_products() -> None:
    first, second = features_of(ConvolutionalNet), features_of(ConvolutionalNet)
    second = replace(second, function=lambda inputs: 3 * first.function(inputs))
    mean = averaged_features(first, second)
    inputs, directions = rows(first, 0), rows(first, 1)
    torch.testing.assert_close(mean(inputs), 2 * first(inputs))
    torch.testing.assert_close(mean.linearise(inputs).push(directions), 2 * first.linearise(inputs).push(directions))
    with pytest.raises(UsageError, match="same sizes"):
        averaged_features(first, second.part(slice(0, 3)))


def test_a_constant_map_has_products_zero() -> None:
    features = ModuleFeatures(lambda inputs: inputs.new_ones(len(inputs), 3), 4, 3, torch.float64)
    point = features.linearise(torch.ones(2, 4, dtype=torch.float64))
    assert torch.equal(point.push(torch.ones(2, 4, dtype=torch.float64)), torch.zeros(2, 3, dtype=torch.float64))
    assert torch.equal(point.pull(torch.ones(2, 3, dtype=torch.float64)), torch.zeros(2, 4, dtype=torch.float64))


class SoftmaxAfterHead(ConvolutionalNet):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).softmax(dim=1)


class HeadOnEachToken(TokenNet):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(tokens))


def test_what_comes_after_the_head_does_not_matter() -> None:
    torch.manual_seed(3)
    network = SoftmaxAfterHead().double()
    features = penultimate_features(network, "head", (2, 4, 4))
    inputs = rows(features, 0)
    torch.testing.assert_close(features(inputs), network.body(inputs.reshape(M, 2, 4, 4)))
    pushed = features.linearise(inputs).push(rows(features, 1))
    assert pushed.shape == (M, 12)


def test_the_features_of_a_linear_model_are_its_inputs() -> None:
    features = penultimate_features(nn.Linear(4, 2), "", (4,), bias=True)
    inputs = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(features(inputs), torch.cat([inputs, torch.ones(2, 1)], dim=1))
    assert [block for block, _ in features.feature_blocks(inputs)] == [slice(0, 5)]


@pytest.mark.parametrize(
    ("network", "head", "shape", "message"),
    [
        (ConvolutionalNet(), "tail", (2, 4, 4), r"found 'tail', which the model does not have; there are head$"),
        (ConvolutionalNet(), "body.0", (2, 4, 4), r"found 'body.0' of type Conv2d; there are head$"),
        (HeadOnEachToken(), "head", (3, 4), r"to see 2 x 4 features of 2 inputs, found shape \[2, 3, 4\]"),
        (ConvolutionalNet(), "head", (2, 4), r"takes inputs of shape \[2, 4\], found: RuntimeError"),
    ],
)
def test_heads_that_cannot_be_attacked_are_refused_in_one_line(
    network: nn.Module, head: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        penultimate_features(network, head, shape)
