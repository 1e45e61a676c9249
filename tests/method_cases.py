"""One small victim per method of attack, made in plain torch, and the attack that reads it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

import exhume
from exhume.activations import activation
from exhume.attacks.firing.attack import FiringPatterns
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.heavy_ball import HeavyBall, ModuleHeavyBall
from exhume.attacks.informed.attack import InformedAttack
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.prior.attack import ImagePrior
from exhume.attacks.rewind.attack import Rewind
from exhume.attacks.silent.attack import SilentUnits
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.attacks.tangent.newton import KktAttack, NtkAttack
from exhume.features.module import penultimate_features
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.known import Known
from exhume.layer_states import changed
from exhume.observation import Knowledge, Observation
from silent_victims import train

D, N, P, SIDE = 16, 3, 400, 4
SHAPE = (1, SIDE, SIDE)
Held = Literal["weights", "rows", "units"]


@dataclass(frozen=True, eq=False)
class MethodCase:
    """`held`: what of the observation the places of a held-out record count."""

    observation: Observation
    method: AnyMethod
    held: Held = "weights"


def samples(n: int = N) -> Tensor:
    rows = torch.randn(n, D, generator=torch.Generator().manual_seed(1))
    return rows * (math.sqrt(D) / rows.norm(dim=1, keepdim=True))


@cache
def random_features(name: str = "relu", bias: bool = False) -> Observation:
    stream = torch.Generator().manual_seed(2)
    rows = torch.randn(P, D, generator=stream) / math.sqrt(D)
    offsets = torch.randn(P, generator=stream) / 2 if bias else None
    features = RidgeFeatures(HeldRows(rows), activation(name), offsets)
    weights = torch.tensor([[1.0, -0.8, 1.2]]) @ features(samples())
    return Observation(features, weights, Knowledge(N, math.sqrt(D)), SHAPE)


@cache
def two_layers(width: int = 200) -> Observation:
    """A network W₂ relu(W₁ x), trained by plain gradient descent, and its weights before training."""
    stream, inputs = torch.Generator().manual_seed(3), samples().double()
    first = torch.randn(width, D, generator=stream, dtype=torch.float64) / D**0.5
    head = torch.randn(1, width, generator=stream, dtype=torch.float64) / width**0.5
    weights = [first.clone(), head.clone()]
    for _ in range(300):
        reached = inputs @ weights[0].T
        errors = reached.relu() @ weights[1].T - torch.tensor([[1.0], [-1.0], [0.5]], dtype=torch.float64)
        steps = (((errors @ weights[1]) * (reached > 0)).T @ inputs, errors.T @ reached.relu())
        weights = [weight - 2e-3 * step for weight, step in zip(weights, steps, strict=True)]
    features = RidgeFeatures(HeldRows(weights[0]), activation("relu"), trained=True)
    knowledge = Knowledge(N, math.sqrt(D), "known")
    return Observation(features, weights[1] - head, knowledge, SHAPE, head=weights[1], initial_rows=HeldRows(first))


@cache
def network() -> Observation:
    """Penultimate features of a network that have no form phi(Wx + b)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        body = nn.Sequential(nn.Linear(D, 60), nn.Tanh(), nn.Linear(60, P), nn.Tanh(), nn.Linear(P, 1, bias=False))
    features = penultimate_features(body, "4", (D,))
    weights = torch.tensor([[1.0, -0.8, 1.2]]) @ features(samples())
    return Observation(features, weights.detach(), Knowledge(N, math.sqrt(D)), SHAPE)


def with_known(observation: Observation, labels: bool) -> Observation:
    """All samples but the last; with labels that make the weights a stationary fit at the penalty 1 / N."""
    others = samples()[:-1]
    if not labels:
        return replace(observation, known=Known(others))
    outputs = observation.features(others) @ observation.weights[0]
    labelled = outputs + torch.tensor([1.0, -0.8])  # -(f - y) / (n penalty) is the coefficient
    return replace(observation, known=Known(others, labelled, "square", 1 / N))


def linear_model() -> Observation:
    """theta = sum of a_i (x_i, 1): no weight is spare, and the norm is what is left to judge by."""
    rows, bias = torch.cat([torch.eye(D), torch.zeros(1, D)]), torch.cat([torch.zeros(D), torch.ones(1)])
    features = RidgeFeatures(HeldRows(rows), activation("linear"), bias)
    weights = torch.tensor([[1.0, -0.8, 1.2]], dtype=torch.float64) @ features(samples().double())
    return with_known(Observation(features, weights.float(), Knowledge(None, math.sqrt(D))), labels=True)


def spanned(observation: Observation) -> Observation:
    columns = torch.cat([samples(), torch.randn(5, D, generator=torch.Generator().manual_seed(5))]).T
    return replace(observation, subspace=torch.linalg.qr(columns)[0])


def one_layer(bias: bool = True) -> Observation:
    victim = train(n=6, d=D, h=300, bias=bias)
    states = changed(victim.start, victim.end, bias=bias)
    return exhume.observe_layer(states, Knowledge(norm=None if bias else 2.0))


SHORT: dict[str, Any] = {"starts": 1, "regrowths": 0, "stage_iterations": 15}
CASES: dict[str, Callable[[], MethodCase]] = {
    "split-newton": lambda: MethodCase(random_features(), SplitNewton()),
    "split-newton with a bias": lambda: MethodCase(random_features("tanh", True), SplitNewton(iterations=60)),
    "heavy-ball": lambda: MethodCase(random_features(), HeavyBall(iterations=30)),
    "heavy-ball on a network": lambda: MethodCase(network(), ModuleHeavyBall(step_size=1.0, iterations=15)),
    "subspace, given": lambda: MethodCase(spanned(random_features()), SubspaceAttack("given")),
    "subspace, first layer": lambda: MethodCase(two_layers(), SubspaceAttack("first-layer")),
    "subspace, moments": lambda: MethodCase(random_features(), SubspaceAttack("moments")),
    "image-prior": lambda: MethodCase(random_features(), ImagePrior(release=SplitNewton(iterations=60))),
    "image-prior, given subspace": lambda: MethodCase(
        spanned(random_features()), ImagePrior(within=SubspaceAttack("given"), resolution=6)
    ),
    "module-newton": lambda: MethodCase(network(), ModuleNewton(iterations=15, starts=1)),
    "ntk": lambda: MethodCase(two_layers(), NtkAttack(iterations=60, **SHORT), "rows"),
    "kkt": lambda: MethodCase(two_layers(), KktAttack(iterations=60, **SHORT), "rows"),
    "rewind": lambda: MethodCase(replace(two_layers(600), initial_rows=None), Rewind(2)),
    "firing-patterns": lambda: MethodCase(two_layers(), FiringPatterns(2), "rows"),
    "informed": lambda: MethodCase(with_known(random_features(), False), InformedAttack(20)),
    "informed, with labels": lambda: MethodCase(with_known(random_features(), True), InformedAttack(20)),
    "informed, linear": lambda: MethodCase(linear_model(), InformedAttack()),
    "silent-units": lambda: MethodCase(one_layer(), SilentUnits(30), "units"),
    "silent-units without a bias": lambda: MethodCase(one_layer(False), SilentUnits(30), "units"),
}


def disturbed(case: MethodCase, places: Tensor) -> Observation:
    """The same observation with other numbers at those places of what was attacked."""
    seen = case.observation
    noise = torch.Generator().manual_seed(6)

    def other(values: Tensor, rows: bool) -> Tensor:
        values = values.clone()
        part = values[places] if rows else values[:, places]
        part = part * (1.5 + torch.rand(part.shape, generator=noise).to(part))
        if rows:
            values[places] = part
        else:
            values[:, places] = part
        return values

    if case.held == "weights":
        return replace(seen, weights=other(seen.weights, rows=False))
    if case.held == "rows":
        rows = seen.ridge.rows
        features = replace(seen.ridge, rows=HeldRows(other(rows.block(0, rows.p), rows=True)))
        return replace(seen, features=features)
    states = seen.layers[0]
    target = other(states.target, rows=True)
    ends = tuple(other(end, rows=True) for end in states.ends)
    return replace(seen, layers=(replace(states, target=target, ends=ends),))
