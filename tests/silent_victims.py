"""Ordinary networks for the tests of silent units: plain PyTorch, default layers with bias, torch's own optimisers."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from exhume.attacks.foundation.spectrum import spectrum
from exhume.attacks.silent.span import Span, open_span
from exhume.layer_states import changed
from exhume.networks.head import with_bias


def rows(n: int, d: int, seed: int) -> Tensor:
    """Raw data: columns with means and scales of their own, rows of different norms."""
    stream = torch.Generator().manual_seed(seed)
    values = torch.randn(n, d, generator=stream) * (0.5 + torch.rand(d, generator=stream))
    return values * (0.6 + 0.8 * torch.rand(n, 1, generator=stream)) + 0.3 * torch.randn(d, generator=stream)


@dataclass(frozen=True, eq=False)
class Trained:
    model: nn.Sequential
    before: dict[str, Tensor]
    optimiser: Any
    inputs: Tensor

    @property
    def layer(self) -> nn.Linear:
        found = self.model[0]
        assert isinstance(found, nn.Linear)
        return found

    @property
    def start(self) -> Tensor:
        return with_bias(self.before["0.weight"], self.before.get("0.bias"))

    @property
    def end(self) -> Tensor:
        return with_bias(self.layer.weight, self.layer.bias)


def train(
    n: int = 12,
    d: int = 40,
    h: int = 400,
    seed: int = 0,
    steps: int = 120,
    bias: bool = True,
    activation: type[nn.Module] = nn.ReLU,
    optimiser: str = "SGD",
    **options: Any,
) -> Trained:
    """Mini-batches of half the data, cross-entropy, three classes, three layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(d, h, bias=bias), activation(), nn.Linear(h, 64), nn.ReLU(), nn.Linear(64, 3))
        before = copy.deepcopy(model.state_dict())
        inputs, labels = rows(n, d, seed), torch.arange(n) % 3
        options = options or ({"lr": 0.05, "momentum": 0.9} if optimiser == "SGD" else {"lr": 1e-3})
        made = getattr(torch.optim, optimiser)(model.parameters(), **options)
        for _ in range(steps):
            chosen = torch.randperm(n)[: max(1, n // 2)]
            made.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
            made.step()
    return Trained(model, before, made, inputs)


def span_of(seed: int = 0) -> tuple[Span, Tensor, Tensor]:
    """A span, its true places and their duals, both as rows."""
    victim = train(seed=seed)
    states = changed(victim.start, victim.end, bias=True)
    shown = spectrum(states)
    span, _ = open_span(states, shown, torch.ones(states.h, dtype=torch.bool))
    extended = torch.cat([victim.inputs.double(), torch.ones(len(victim.inputs), 1, dtype=torch.float64)], dim=1)
    points = span.facing(extended @ torch.linalg.pinv(span.unscale))
    duals = torch.linalg.inv(points).T
    return span, points, duals / duals.norm(dim=1, keepdim=True)
