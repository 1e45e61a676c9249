"""Networks that might fool a certificate, for `fooling.py`: made by plain torch, seen through `exhume.observe`."""

import math
from pathlib import Path

import numpy as np
import torch
from fooling_data import DRAWN, Stream, drawn
from fooling_problems import Fooling, family, on_sphere
from torch import nn

import exhume


def _fine_tuned(stream: Stream, dims: tuple[int, int], units: tuple[int, int], faint: bool) -> Fooling:
    """Three layers, of which the head alone was trained: its change is made of the samples' features."""
    d, n, k = int(stream.integers(dims[0], dims[1] + 1)), int(stream.integers(2, 6)), int(stream.integers(1, 4))
    samples = on_sphere(drawn(str(stream.choice(DRAWN)), n, d, stream))
    name = str(stream.choice(["tanh", "gelu", "softplus"]))
    phi = {"tanh": nn.Tanh, "gelu": nn.GELU, "softplus": nn.Softplus}[name]
    torch.manual_seed(int(stream.integers(2**31)))
    h1, h2 = round(stream.uniform(1.5, 3) * d), int(stream.integers(units[0], units[1] + 1))
    network = nn.Sequential(nn.Linear(d, h1), phi(), nn.Linear(h1, h2), phi(), nn.Linear(h2, k, bias=False))
    first, head = network[0], network[4]
    assert isinstance(first, nn.Linear)
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        if faint:
            seen = int(stream.integers(1, d))
            first.weight[:, seen:] *= 0.0 if stream.random() < 0.3 else 10.0 ** -stream.uniform(1, 5)
        before = {name: value.clone() for name, value in network.state_dict().items()}
        change = torch.tensor(stream.standard_normal((k, n)), dtype=torch.float32) @ network[:4](
            torch.tensor(samples, dtype=torch.float32)
        )
        if stream.random() < 0.3:
            change += 10.0 ** -stream.uniform(2, 5) * change.std() * torch.randn(change.shape)
        head.weight += change
    made = exhume.observe(network, initial=before, norm=math.sqrt(d))
    return Fooling(np.zeros((0, d)), np.zeros((k, 0)), name, samples, bias=np.zeros(0), made=made)


@family("a network")
def _network(stream: Stream, _: Path) -> Fooling:
    return _fine_tuned(stream, (8, 20), (400, 1200), faint=False)


@family("a network with a faint first layer")
def _faint(stream: Stream, _: Path) -> Fooling:
    """Some of them with so many units that the Jacobian takes more room than an attack has."""
    return _fine_tuned(stream, (8, 24), (400, 1200) if stream.random() < 0.5 else (6000, 12000), faint=True)


@family("a network, over 1,200 unknowns")
def _large(stream: Stream, _: Path) -> Fooling:
    return _fine_tuned(stream, (300, 420), (1500, 4000), faint=bool(stream.random() < 0.5))


@family("all weights of two layers")
def _both(stream: Stream, _: Path) -> Fooling:
    """By plain gradient descent from known weights. In some, units fire for all samples alike: only a sum shows."""
    d, n, k = int(stream.integers(8, 24)), int(stream.integers(2, 6)), int(stream.integers(1, 4))
    h = int(stream.integers(10, 40)) * n
    samples = on_sphere(drawn(str(stream.choice([*DRAWN, "near-duplicates"])), n, d, stream))
    x = torch.tensor(samples, dtype=torch.float32)
    name = str(stream.choice(["relu", "tanh"]))
    phi = {"relu": nn.ReLU, "tanh": nn.Tanh}[name]
    torch.manual_seed(int(stream.integers(2**31)))
    network = nn.Sequential(nn.Linear(d, h, bias=False), phi(), nn.Linear(h, k, bias=False))
    first = network[0]
    assert isinstance(first, nn.Linear)
    if stream.random() < 0.4:
        with torch.no_grad():
            first.weight += stream.uniform(0.2, 3) * x.mean(dim=0) / d
            first.weight *= 0.3
    before = {name: value.clone() for name, value in network.state_dict().items()}
    labels = torch.tensor(stream.standard_normal((n, k)), dtype=torch.float32)
    descent = torch.optim.SGD(network.parameters(), lr=10.0 ** -stream.uniform(2, 4))
    for _step in range(int(stream.integers(20, 300))):
        descent.zero_grad()
        (network(x) - labels).square().sum().backward()
        descent.step()
    made = exhume.observe(network, initial=before, norm=math.sqrt(d))
    return Fooling(np.zeros((0, d)), np.zeros((k, 0)), name, samples, made=made, method="ntk")
