import torch

from exhume_papers.networks.two_layer import TwoLayer


def test_the_module_is_the_formula_and_owns_its_weights() -> None:
    first, head, rows = torch.randn(7, 4), torch.randn(3, 7), torch.randn(5, 4)
    net = TwoLayer(first, head, torch.tanh)
    torch.testing.assert_close(net(rows), torch.tanh(rows @ first.T) @ head.T)
    first.zero_()
    assert bool(net.first.weight.any())
    assert [name for name, _ in net.named_parameters()] == ["first.weight", "head.weight"]
