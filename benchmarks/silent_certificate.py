"""How often the silent-units attack is wrong about what it calls recovered, and how often it misses.

    python benchmarks/silent_certificate.py --data-dir DIR --problems 300 --seed 1000

Problems are drawn at random: data (CIFAR-10, faces raw and standardised, tables that are correlated, heavy-tailed,
binary or sparse), sizes, activations, optimisers, and which state of the layer is attacked. A call is wrong if the
candidate is farther than a tenth of a sample's norm from every sample. About 10 minutes on one core.
"""

import argparse
import math
import random
import time
from pathlib import Path

import torch
from ordinary_networks import LEAKS, Trained, cifar, faces, first_layer, train
from torch import Tensor, nn

import exhume
from exhume.layer_states import LayerStates, averaged, changed
from exhume.metrics.errors import relative_errors
from exhume.observing.optimiser_states import optimiser_layer

KINDS = ("cifar", "faces", "raw faces", "correlated", "heavy-tailed", "binary", "sparse", "clusters")
TARGETS = (
    *("training", "training", "float16", "bfloat16", "decay", "momentum", "gradient", "adam", "exp_avg"),
    *("noise", "other start"),
)


def table(kind: str, n: int, d: int, seed: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    values = torch.randn(n, d, generator=stream)
    match kind:
        case "correlated":
            return values @ torch.randn(d, d, generator=stream) / math.sqrt(d) + torch.randn(d, generator=stream)
        case "heavy-tailed":
            return values / torch.rand(n, d, generator=stream).clamp_min(0.02)
        case "binary":
            return (values > 0.5).float()
        case "sparse":
            return values * (torch.rand(n, d, generator=stream) < 0.1)
    centres = torch.randn(3, d, generator=stream)
    return centres[torch.arange(n) % 3] + 0.2 * values


def victim(kind: str, draw: random.Random, data_dir: Path, seed: int, target: str) -> Trained:
    n = draw.randint(4, 40)
    h = int(n * draw.choice((8, 12, 20, 40))) + 50
    if kind == "cifar":
        inputs, labels = cifar(data_dir, n, draw.randint(0, 900))
    elif "faces" in kind:
        inputs, labels = faces(n, seed, raw=kind == "raw faces")
    else:
        inputs = table(kind, n, draw.choice((n + 5, 60, 200)), seed)
        labels = torch.arange(n) % draw.choice((2, 3, 10))
    widths = draw.choice(((h, 10), (h, 100, 10)))
    options = {"weight_decay": 1e-3} if target == "decay" else {}
    optimiser = "Adam" if target in ("adam", "exp_avg") else "SGD"
    rate = (
        {"lr": 1e-3} if optimiser == "Adam" else {"lr": draw.choice((0.01, 0.05)), "momentum": draw.choice((0.0, 0.9))}
    )
    activation = draw.choice(("relu",) * 5 + ("relu6", "leaky", "prelu", "gelu"))
    steps = 0 if target == "gradient" else draw.choice((60, 200, 500))
    batch = draw.choice((5, 20, n))
    rate |= options
    how = {"steps": steps, "batch": batch, "optimiser": optimiser, "activation": activation}
    return train(inputs, labels, widths, seed=seed, **how, **rate)


def states_of(made: Trained, target: str, seed: int) -> LayerStates:
    leak = next((LEAKS[name] for name, kind in _activations().items() if isinstance(made.model[1], kind)), 0.0)
    start, end, stream = made.start, made.end, torch.Generator().manual_seed(seed)
    if target in ("float16", "bfloat16"):
        end = end.to(getattr(torch, target)).float()
    if target == "noise":
        end = end + 1e-4 * end.std() * torch.randn(end.shape, generator=stream)
    if target == "other start":
        start = torch.randn(start.shape, generator=stream) * start.std()
    if target in ("momentum", "exp_avg"):
        return optimiser_layer(made.model, made.optimiser.state_dict(), "0")
    if target == "gradient":
        labels = torch.arange(len(made.inputs)) % 10
        nn.functional.cross_entropy(made.model(made.inputs), labels).backward()
        layer = made.model[0]
        assert isinstance(layer, nn.Linear)
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        gradient = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1)
        return averaged(gradient, first_layer(made.model), bias=True, source="update", leak=leak)
    return changed(start, end, bias=True, leak=leak)


def _activations() -> dict[str, type[nn.Module]]:
    from ordinary_networks import ACTIVATIONS

    return ACTIVATIONS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began, called, wrong, present, right, whole, problems = time.monotonic(), 0, 0, 0, 0, 0, 0
    by_target: dict[str, list[int]] = {}
    for index in range(options.problems):
        seed = options.seed + index
        draw = random.Random(seed)
        kind, target = draw.choice(KINDS), draw.choice(TARGETS)
        made = victim(kind, draw, options.data_dir, seed, target)
        try:
            states = states_of(made, target, seed)
            found = exhume.reconstruct(exhume.observe_layer(states), budget_seconds=20, seed=seed)
        except exhume.errors.ExhumeError:
            continue
        problems += 1
        sure = torch.tensor(found.certificate.confidence) >= 0.5
        distances = torch.cdist(found.inputs.double()[sure], made.inputs.double()) / made.inputs.double().norm(dim=1)
        misses = int((distances.amin(dim=1) > 0.1).sum()) if int(sure.sum()) else 0
        called, wrong, present = called + int(sure.sum()), wrong + misses, present + len(made.inputs)
        whole += found.outcome.value == "recovered"
        if len(found.inputs):
            right += int((relative_errors(made.inputs.double(), found.inputs.double()) < 0.1).sum())
        line = by_target.setdefault(target, [0, 0, 0, 0])
        for place, value in enumerate((1, len(made.inputs), int(sure.sum()), misses)):
            line[place] += value
        if misses:
            print(f"WRONG: seed {seed}, {kind}, {target}: {misses} of {int(sure.sum())}", flush=True)
    print(f"{problems} problems, {time.monotonic() - began:.0f} s")
    print(f"{called} called recovered, {wrong} wrongly (95 % interval: at most {3 / max(called, 1):.1e} if none)")
    print(f"{present} samples, {right} within a tenth of their norm, {right - (called - wrong)} of those not called")
    print(f"{whole} problems recovered in full")
    print("| state of the layer | problems | samples | called recovered | wrongly |")
    print("| --- | --- | --- | --- | --- |")
    for target, (count, samples, calls, misses) in sorted(by_target.items()):
        print(f"| {target} | {count} | {samples} | {calls} | {misses} |")


if __name__ == "__main__":
    main()
