"""Weights that Adam with L2 in the loss has brought to rest: how far they rest, and what an audit gets out of them.

    python benchmarks/at_rest.py [--budget S] [--seeds A:B]

20 digits (8 x 8, divided by 16), a default PyTorch 64-512-k network, torch's Adam with `weight_decay`, 8,000 full-batch
steps with a rate that falls from 3e-3 to 0. No start is given, and n is not told. `own` classes: every digit is its own
class, which condenses less. `directions`: singular values of the first layer above a hundredth of the largest.
`head outside` and `layer outside`: the shares that the page prints. A victim takes about 15 s of a core to train.
"""

import argparse
import math

import torch
from torch.nn.functional import cross_entropy
from zoo.data import digits
from zoo.networks import mlp

import exhume

STEPS, N, RATE = 8000, 20, 3e-3
VICTIMS = (("10", 1e-3), ("own", 1e-3), ("own", 1e-4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60.0, metavar="S")
    parser.add_argument("--seeds", default="0:1", metavar="A:B")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    columns = (
        "classes",
        "L2",
        "seed",
        "directions",
        "head outside",
        "layer outside",
        "within a tenth",
        "median",
        "verdict",
    )
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for classes, decay in VICTIMS:
        for seed in range(first, last):
            print(_line(classes, decay, seed, options.budget), flush=True)


def _line(classes: str, decay: float, seed: int, budget: float) -> str:
    torch.manual_seed(seed)
    records, control = digits(N)
    labels = records.labels if classes == "10" else torch.arange(N)
    model = mlp(64, 512, int(labels.max()) + 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=decay)
    falling = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5 * (1 + math.cos(math.pi * step / STEPS)))
    for _ in range(STEPS):
        optimiser.zero_grad()
        cross_entropy(model(records.inputs), labels).backward()
        optimiser.step()
        falling.step()
    values = torch.linalg.svdvals(next(iter(model.parameters())).detach().double())
    audit = exhume.audit(
        model, truth=records.inputs, control=control.inputs, recipe=("adam", "stationary"), budget=budget, seed=seed
    )
    assert audit.subject.recipes is not None
    shares = [line.partition("a share of ")[2].split()[0] for line in audit.subject.recipes["measured"][:2]]
    told = audit.summary
    cells = [classes, f"{decay:g}", seed, int((values > 0.01 * values[0]).sum()), *shares]
    cells += [f"{told['recovered']} of {N}", f"{told['median_relative_error']:.2g}", audit.verdict.value]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
