"""What a LoRA adapter says of its records: how many there were, and which of 600 they are.

    python benchmarks/adapters.py [--seeds 3] [--json]

A network 64-512-10 is trained on 900 of scikit-learn's digits. An adapter on its first layer (in peft's layout and
with its starts) and a new head are trained on n other digits of new classes, for 200 steps on all of them. The pool
has the n members and 600 others, as inputs of the layer. `exact` counts records that lie in the rows of B to rounding,
members and others; AUC and the share at 1 % are those of the score of `exhume rank`, with 300 others as non-members.
"""

import argparse
import copy
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

from exhume.attacks.probes.embedding_span import embedding_span
from exhume.attacks.probes.ranking import rank_records
from exhume.data.records import Records
from exhume.experiments.adapted_layer import layer_of
from exhume.formats.adapter import read_adapter
from exhume.metrics.detection import detection_rate, roc_auc

OTHERS, BASE = 600, 900
CASES = ((8, 5, "sgd"), (32, 20, "sgd"), (32, 20, "adamw"), (8, 20, "sgd"), (8, 20, "adamw"), (16, 100, "adamw"))


@dataclass(frozen=True)
class Line:
    rank: int
    records: int
    optimiser: str
    dimensions: int
    exact_members: int
    exact_others: int
    auc: float
    at_1_percent: float


def digits() -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy(pixels).float() / 16
    return (inputs - inputs.mean()) / inputs.std(), torch.from_numpy(labels)


def base_model(inputs: Tensor, labels: Tensor) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(200):
        chosen = torch.randint(BASE, (64,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        optimiser.step()
    return model


def adapted(base: nn.Sequential, inputs: Tensor, labels: Tensor, rank: int, kind: str, folder: Path) -> Path:
    """A of `nn.Linear`'s own start and B of zero, as peft draws them; alpha is 2 r."""
    first, head = base[0], copy.deepcopy(base[2])
    assert isinstance(first, nn.Linear)
    down, up = nn.Linear(64, rank, bias=False), nn.Linear(rank, 512, bias=False)
    nn.init.zeros_(up.weight)
    parts = [*down.parameters(), *up.parameters(), *head.parameters()]
    optimiser: torch.optim.Optimizer = torch.optim.AdamW(parts, 1e-3)
    if kind == "sgd":
        optimiser = torch.optim.SGD(parts, 0.05, momentum=0.9)
    for _ in range(200):
        optimiser.zero_grad()
        outputs = head(torch.relu(first(inputs) + 2 * up(down(inputs))))
        nn.functional.cross_entropy(outputs, labels).backward()
        optimiser.step()
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    tensors = {"lora_A": down.weight.detach().clone(), "lora_B": up.weight.detach().clone()}
    named = {f"base_model.model.0.{name}.weight": value for name, value in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    return folder


def measure(seeds: int) -> Iterator[Line]:
    inputs, labels = digits()
    base = base_model(inputs, labels)
    inputs, labels = inputs[BASE:], (labels[BASE:] + 3) % 10
    for rank, count, kind in CASES:
        for seed in range(seeds):
            order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
            own, others = order[:count], order[count : count + OTHERS]
            with tempfile.TemporaryDirectory() as place:
                folder = adapted(base, inputs[own], labels[own], rank, kind, Path(place))
                found = read_adapter(folder)
                layer = layer_of(found, None, 64, folder)
                _, up = found.changes[0].factors()
            pool = torch.cat([inputs[own], inputs[others]])
            rows = layer.read(Records(pool, tuple(map(str, range(len(pool)))))).rows
            middle = count + OTHERS // 2
            ranking = rank_records(layer.probe, rows[:middle], rows[middle:])
            exact = None if ranking.matches is None else ranking.matches.exact
            scores = torch.cat([ranking.score, ranking.non_member_score])
            yield Line(
                rank,
                count,
                kind,
                embedding_span(torch.from_numpy(up)).rank,
                0 if exact is None else int(exact[:count].sum()),
                0 if exact is None else int(exact[count:].sum()),
                roc_auc(scores[:count], scores[count:]),
                detection_rate(scores[:count], scores[count:], 0.01),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = []
    print("| r | n | optimiser | rank of B | exact: members | exact: others | AUC | at 1 % |")
    for line in measure(options.seeds):
        lines.append(line)
        cells = (line.rank, line.records, line.optimiser, line.dimensions, line.exact_members, line.exact_others)
        print(f"| {' | '.join(map(str, cells))} | {line.auc:.2f} | {line.at_1_percent:.2f} |", flush=True)
    if options.json:
        print(json.dumps([asdict(line) for line in lines]))


if __name__ == "__main__":
    main()
