"""Problems for `silent_certificate.py`, each drawn from its seed alone: data, network, recipe, state of the layer.

States of the layer that are attacked:

    training      the change from the start to the end, with plain SGD or momentum
    fine-tuning   the same from weights that were trained on other data
    checkpoints   the change from the middle to the end
    average       the weights beside their moving average
    momentum      SGD's momentum buffer;  exp_avg: that of Adam or AdamW
    gradient      one gradient of all samples
    federated     a client's update of several local steps, from weights that were trained on other data
    stationary    the weights alone, after L2 has made them an average of gradients, by SGD or Adam
    decay         the change, with weight decay, c not told
    float16, bfloat16, noise    the change, of weights that were stored so, or got noise of 0.01 % to 0.3 %
    many samples  the change, with more samples than dimensions and one
    batch norm    the change, with batch norm before the activation
    other start   the change from another start than the true one
    adam          the change, of weights that Adam or AdamW trained
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ordinary_networks import ACTIVATIONS, LEAKS, Trained, first_layer, train
from silent_data import DRAWN, IMAGES, REAL, TEXT, data
from torch import Tensor, nn

from exhume.layer_states import LayerStates, averaged, changed
from exhume.observing.optimiser_states import optimiser_layer

STATES = (
    *("training", "fine-tuning", "checkpoints", "average", "momentum", "exp_avg", "gradient", "federated"),
    *("stationary", "decay", "float16", "bfloat16", "noise", "many samples", "batch norm", "other start", "adam"),
)
GROUPS = ((IMAGES, 0.3), (DRAWN, 0.35), (REAL, 0.22), ((TEXT,), 0.13))
RELU = 0.6  # share of problems with ReLU; the other activations share the rest
TOLD = 0.8  # share of problems with another activation where the attacker knows how much it leaks


@dataclass(frozen=True)
class Source:
    data_dir: Path
    text: Path


@dataclass(frozen=True)
class Problem:
    """Everything that is drawn. `told`: whether the attack is told how much the activation leaks."""

    seed: int
    state: str
    kind: str
    activation: str
    n: int
    columns: int
    h: int
    deep: bool
    batch: int
    steps: int
    rate: float
    momentum: float
    told: bool

    @classmethod
    def drawn(cls, seed: int) -> "Problem":
        draw = random.Random(seed)
        state = STATES[seed % len(STATES)]
        group = draw.choices([group for group, _ in GROUPS], [weight for _, weight in GROUPS])[0]
        kind = draw.choice(group)
        if state == "many samples" and kind in (*IMAGES, TEXT):
            kind = draw.choice(DRAWN)
        n, columns = draw.randint(4, 40), draw.choice((0, 60, 200))
        columns = max(columns, n + 5)
        if state == "many samples":
            columns = max(3, n // draw.choice((2, 3)))
            n = 60 if kind in REAL else n
        others = [name for name in ACTIVATIONS if name != "relu"]
        return cls(
            seed=seed,
            state=state,
            kind=kind,
            activation="relu" if draw.random() < RELU else draw.choice(others),
            n=n,
            columns=columns,
            h=n * draw.choice((8, 12, 20, 40)) + 50,
            deep=draw.random() < 0.5,
            batch=draw.choice((5, 20, n)),
            steps=draw.choice((60, 200, 500)),
            rate=draw.choice((0.01, 0.05)),
            momentum=draw.choice((0.0, 0.9)),
            told=draw.random() < TOLD,
        )

    def describe(self) -> str:
        untold = "" if self.told or LEAKS[self.activation] == 0 else " (leak not told)"
        return f"seed {self.seed}, {self.state}, {self.kind}, {self.activation}{untold}"

    @property
    def leak(self) -> float:
        return LEAKS[self.activation] if self.told else 0.0


def made(problem: Problem, source: Source) -> tuple[LayerStates, Tensor]:
    """The states of the layer, and the samples."""
    inputs, labels = data(problem.kind, problem.n, problem.columns, problem.seed, source.data_dir, source.text)
    if problem.state != "many samples":
        inputs, labels = inputs[: inputs.shape[1]], labels[: inputs.shape[1]]
    size = float(inputs.square().mean())
    # steps that suit standardised columns would throw the network off where columns are large
    rate = problem.rate * min(1.0, 1 / size) * (10 if problem.kind == TEXT else 1)
    outputs = max(int(labels.max()) + 1, 2 if problem.seed % 2 else 10)
    widths = (problem.h, 100, outputs) if problem.deep else (problem.h, outputs)
    how: dict[str, Any] = {"activation": problem.activation, "batch": problem.batch, "steps": problem.steps}
    plain = {"lr": rate, "momentum": problem.momentum}
    adaptive = {"optimiser": draw_of(problem, "Adam", "AdamW"), "lr": 1e-3}
    bare = {"lr": rate, "momentum": 0.0}

    def run(**more: Any) -> Trained:
        return train(inputs, labels, widths, seed=problem.seed, **(how | more))

    def change(trained: Trained) -> LayerStates:
        return changed(trained.start, trained.end, bias=True, leak=problem.leak)

    match problem.state:
        case "training":
            return change(run(**plain)), inputs
        case "fine-tuning":
            return change(run(**plain, begin=_elsewhere(problem, source, widths, how | plain, inputs))), inputs
        case "checkpoints":
            middle = problem.steps // draw_of(problem, 2, 5)
            trained = run(**plain, keep=(middle,))
            early = trained.kept[middle]
            return changed(early, trained.end, bias=True, source="checkpoints", leak=problem.leak), inputs
        case "average":
            trained = run(**plain, average=draw_of(problem, 0.9, 0.99))
            assert trained.average is not None
            return changed(trained.average, trained.end, bias=True, source="average", leak=problem.leak), inputs
        case "momentum":
            return _kept_average(run(lr=rate, momentum=0.9), problem), inputs
        case "exp_avg":
            return _kept_average(run(**adaptive), problem), inputs
        case "gradient":
            return _gradient(run(**bare, steps=0), labels, problem), inputs
        case "federated":
            begin = _elsewhere(problem, source, widths, how | bare, inputs)
            trained = run(**bare, steps=draw_of(problem, 3, 10), begin=begin)
            return changed(trained.start, trained.end, bias=True, source="update", leak=problem.leak), inputs
        case "stationary":
            # 0.1 x 0.005 / (1 - 0.9) per step: e^-15 of the start is left after 3,000
            slow = {"lr": 0.1 * rate / problem.rate, "momentum": 0.9, "weight_decay": 5e-3 * problem.rate / rate}
            quick = {"optimiser": "Adam", "lr": 3e-3, "weight_decay": 5e-3}
            trained = run(**draw_of(problem, slow, quick), steps=3000, batch=len(inputs))
            return averaged(trained.end, trained.end, bias=True, source="stationary", leak=problem.leak), inputs
        case "decay":
            return change(run(**plain, weight_decay=draw_of(problem, 1e-3, 1e-2))), inputs
        case "batch norm":
            return change(run(**plain, batch_norm=True)), inputs
        case "adam":
            return change(run(**adaptive)), inputs
        case "many samples":
            return change(run(**plain)), inputs
    trained = run(**plain)
    start, end = _disturbed(trained, problem)
    return changed(start, end, bias=True, leak=problem.leak), inputs


def draw_of(problem: Problem, *values: Any) -> Any:
    """One of a few values, by the problem's seed."""
    return random.Random(f"{problem.seed} {len(values)}").choice(values)


def _elsewhere(
    problem: Problem, source: Source, widths: tuple[int, ...], how: dict[str, Any], inputs: Tensor
) -> nn.Sequential:
    """A network that was trained on other data of the kind."""
    rows, labels = data(problem.kind, 100, inputs.shape[1], problem.seed + 4999, source.data_dir, source.text)
    return train(rows, labels.clamp_max(widths[-1] - 1), widths, seed=problem.seed + 1, **(how | {"steps": 200})).model


def _disturbed(trained: Trained, problem: Problem) -> tuple[Tensor, Tensor]:
    start, end = trained.start, trained.end
    stream = torch.Generator().manual_seed(problem.seed)
    match problem.state:
        case "float16" | "bfloat16":
            return start, end.to(getattr(torch, problem.state)).float()
        case "noise":
            size = draw_of(problem, 1e-4, 1e-3, 3e-3)
            return start, end + size * end.std() * torch.randn(end.shape, generator=stream)
        case "other start":
            return torch.randn(start.shape, generator=stream) * start.std(), end
    raise ValueError(f"expected one of {', '.join(STATES)}, found {problem.state}")


def _kept_average(trained: Trained, problem: Problem) -> LayerStates:
    found = optimiser_layer(trained.model, trained.optimiser.state_dict(), "0")
    return averaged(found.target, found.ends[-1], bias=True, name=found.name, leak=problem.leak)


def _gradient(trained: Trained, labels: Tensor, problem: Problem) -> LayerStates:
    trained.model.zero_grad()
    nn.functional.cross_entropy(trained.model(trained.inputs), labels).backward()
    layer = trained.model[0]
    assert isinstance(layer, nn.Linear)
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    gradient = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1)
    return averaged(gradient, first_layer(trained.model), bias=True, source="update", leak=problem.leak)
