import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from exhume.errors import UsageError
from exhume.networks.head import find_head, head_tensors, name_of, split_at_head
from exhume_papers.networks.derivatives import push_forward


class Net(nn.Module):
    """A head in the middle of the registration order, with something after it."""

    def __init__(self, calls: int = 1) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5))
        self.calls = calls

    def forward(self, rows: Tensor) -> Tensor:
        features = self.body(rows)
        for _ in range(self.calls):
            outputs = self.head(features)
        return torch.log_softmax(outputs, dim=1) if self.calls else features


def test_a_head_is_found_by_name_and_without_one_it_is_the_last_linear_layer() -> None:
    net = Net()
    assert find_head(net, "head") is net.head
    assert find_head(net) is net.body[0]
    assert find_head(net, probe=torch.zeros(2, 4)) is net.head, "the last that is called"
    assert find_head(net, probe=torch.zeros(2, 5)) is net.body[0], "which it cannot be seen to be"
    assert net.training


def test_a_wrong_name_lists_the_linear_layers() -> None:
    with pytest.raises(UsageError, match=r"found 'heads', which the model does not have; there are head, body\.0$"):
        find_head(Net(), "heads")
    with pytest.raises(UsageError, match=r"found 'body\.1' of type Tanh; there are head, body\.0$"):
        find_head(Net(), "body.1")
    with pytest.raises(UsageError, match=r"found none of type torch\.nn\.Linear"):
        find_head(nn.Sequential(nn.Tanh()), "head")
    many = nn.Sequential(*(nn.Linear(1, 1) for _ in range(20)))
    with pytest.raises(UsageError, match=r"12, 13, 14, 15, 16, 17, 18, 19 \(the last 8 of 20\)"):
        find_head(many, "fc")


def test_a_layer_has_a_name_and_tensors_of_its_own() -> None:
    net = Net()
    assert name_of(net, net.head) == "head"
    assert head_tensors(net, "head") == ("head.weight", "head.bias")
    assert name_of(net.head, net.head) == ""
    assert head_tensors(net.head, "") == ("weight", "bias")


def test_the_features_are_what_the_head_sees_whatever_follows_it() -> None:
    net, rows = Net().train(), torch.randn(5, 4)
    features = split_at_head(net, net.head, rows)
    assert net.training
    assert net.body[2].training
    expected = torch.tanh(net.body[0](rows))
    torch.testing.assert_close(features(rows), expected)
    torch.testing.assert_close(torch.log_softmax(net.head(features(rows)), dim=1), net.eval()(rows))


def test_the_features_are_a_copy_that_later_training_does_not_change() -> None:
    net, rows = Net(), torch.randn(2, 4)
    features = split_at_head(net, net.head, rows)
    before = features(rows)
    with torch.no_grad():
        net.body[0].weight.zero_()  # type: ignore[operator]
    assert torch.equal(features(rows), before)
    assert not net.head._forward_pre_hooks


def test_the_features_can_be_transformed() -> None:
    net, rows = Net().double(), torch.randn(5, 4, dtype=torch.float64)
    features = split_at_head(net, net.head, rows)
    directions = torch.randn_like(rows)
    with torch.no_grad():
        value, moved = features(rows), push_forward(features, rows, directions)
        difference = (features(rows + 1e-6 * directions) - features(rows - 1e-6 * directions)) / 2e-6
    torch.testing.assert_close(moved, difference, atol=1e-8, rtol=1e-7)
    weights = torch.randn_like(value)
    pulled = vjp(features, rows)[1](weights)[0]
    torch.testing.assert_close((pulled * directions).sum(), (weights * moved).sum())
    one_by_one = vmap(lambda row: features(row[None])[0])(rows)
    torch.testing.assert_close(one_by_one, value)
    doubled = {name: 2 * tensor for name, tensor in features.named_parameters()}
    moved_there = push_forward(lambda inputs: functional_call(features, doubled, (inputs,)), rows, directions)
    slopes = 1 - torch.tanh(2 * net.body[0](rows)).square()
    torch.testing.assert_close(moved_there, 2 * slopes * (directions @ net.get_parameter("body.0.weight").T))


def test_heads_that_do_not_fit_the_model_are_one_line() -> None:
    rows = torch.randn(5, 4)
    with pytest.raises(UsageError, match="a layer of the model, found one of another model"):
        split_at_head(Net(), nn.Linear(6, 3), rows)
    for calls in (0, 2):
        net = Net(calls)
        with pytest.raises(UsageError, match="call its head 'head'"):
            split_at_head(net, net.head, rows)
    net = Net()
    with pytest.raises(UsageError, match=r"takes inputs of shape \[7\], found: RuntimeError"):
        split_at_head(net, net.head, torch.randn(5, 7))
    with pytest.raises(UsageError, match="floating point, found int64"):
        split_at_head(net, net.head, torch.ones(5, 4, dtype=torch.int64))


def test_a_head_on_every_token_is_refused() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    with pytest.raises(UsageError, match=r"found shape \[5, 3, 6\]"):
        split_at_head(net, net[1], torch.randn(5, 3, 4))  # type: ignore[arg-type]
