"""What protects an ordinary network from the silent-units attack: the table of docs/silent-units.md.

    python benchmarks/silent_defences.py --data-dir DIR

CIFAR-10, n = 50, 3072-1000-1000-10, SGD with momentum, batches of 20, 600 steps, one seed. About 5 minutes.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from ordinary_networks import cifar, first_layer, train
from torch import Tensor, nn

import exhume
from exhume.layer_states import changed
from exhume.metrics.errors import relative_errors

WIDTHS, SEED, SECONDS = (1000, 1000, 10), 7, 30.0


def rounded(weights: Tensor, bits: int) -> Tensor:
    """Each row on a grid of its own, symmetric around zero."""
    levels = 2 ** (bits - 1) - 1
    step = weights.abs().amax(dim=1, keepdim=True) / levels
    return (weights / step).round() * step


def noisy(weights: Tensor, share: float) -> Tensor:
    return weights + share * weights.std() * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))


def pruned(weights: Tensor, share: float) -> Tensor:
    return weights * (weights.abs() > weights.abs().flatten().kthvalue(round(share * weights.numel())).values)


PUBLISHED: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda weights: weights,
    "float16": lambda weights: weights.half().float(),
    "bfloat16": lambda weights: weights.bfloat16().float(),
    "int8, a scale per row": lambda weights: rounded(weights, 8),
    "int4, a scale per row": lambda weights: rounded(weights, 4),
    "noise of 0.01 % of the weights": lambda weights: noisy(weights, 1e-4),
    "noise of 0.1 %": lambda weights: noisy(weights, 1e-3),
    "noise of 1 %": lambda weights: noisy(weights, 1e-2),
    "half of the weights pruned by size": lambda weights: pruned(weights, 0.5),
}


def trained_private(inputs: Tensor, labels: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """DP-SGD by hand: per-sample gradients clipped to 1, Gaussian noise on their sum, batches of 20, 200 steps."""
    from torch.func import functional_call, grad, vmap

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        sizes = (inputs.shape[1], 1000, 100, 10)
        model = nn.Sequential(
            nn.Linear(sizes[0], sizes[1]), nn.ReLU(), nn.Linear(sizes[1], sizes[2]), nn.ReLU(), nn.Linear(100, 10)
        )
        start = first_layer(model)
        weights = {name: value.detach() for name, value in model.named_parameters()}

        def loss(now: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
            return nn.functional.cross_entropy(functional_call(model, now, (row[None],)), label[None])

        for _ in range(200):
            chosen = torch.randperm(len(inputs))[:20]
            each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, inputs[chosen], labels[chosen])
            norms = sum(value.flatten(1).square().sum(1) for value in each.values()).sqrt().clamp_min(1.0)
            for name, value in each.items():
                clipped = (value / norms.reshape(-1, *[1] * (value.ndim - 1))).sum(dim=0)
                step = (clipped + noise * torch.randn_like(clipped)) / 20
                weights[name] = weights[name] - 0.05 * step
    return start, torch.cat([weights["0.weight"], weights["0.bias"][:, None]], dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    options = parser.parse_args()
    inputs, labels = cifar(options.data_dir, 50, first=300)
    plain = train(inputs, labels, WIDTHS, seed=SEED)
    print("| defence | rank | within 0.1 | called recovered | median error | outcome |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, publish in PUBLISHED.items():
        _line(name, plain.start, publish(plain.end), inputs)
    momentum = {"lr": 0.01, "momentum": 0.9}
    made = train(inputs, labels, WIDTHS, seed=SEED, **momentum, weight_decay=0.05)
    _line("weight decay 0.05", made.start, made.end, inputs)
    made = train(inputs, labels, WIDTHS, seed=SEED, optimiser="Adam")
    _line("Adam", made.start, made.end, inputs)
    _line("the start kept secret", train(inputs, labels, WIDTHS, seed=SEED + 1, steps=1).start, plain.end, inputs)
    for noise in (0.0, 0.01, 0.1, 1.0):
        start, end = trained_private(inputs, labels, noise)
        _line(f"DP-SGD, clip 1, noise {noise:g}", start, end, inputs)


def _line(name: str, start: Tensor, end: Tensor, inputs: Tensor) -> None:
    found = exhume.reconstruct(exhume.observe_layer(changed(start, end, bias=True)), budget_seconds=SECONDS)
    sure = sum(value >= 0.5 for value in found.certificate.confidence)
    errors = torch.ones(len(inputs), dtype=torch.float64)
    if len(found.inputs):
        errors = relative_errors(inputs.double(), found.inputs.double())
    rank = "none" if found.facts["rank"] is None else found.facts["rank"]
    near = int((errors < 0.1).sum())
    print(f"| {name} | {rank} | {near} | {sure} | {float(errors.median()):.0e} | {found.outcome.value} |", flush=True)


if __name__ == "__main__":
    main()
