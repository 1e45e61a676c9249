"""Problems that might fool a certificate, for `fooling.py`: data, features and weights by plain numpy and torch.

A family is a function from a stream of random numbers to one problem. `ordinary` ones are what a careful user would
bring: rows of V without faults, exact weights of the model that is declared, several times as many as unknowns.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from fooling_data import DRAWN, IMAGES, REAL, Stream, drawn, real
from scipy.special import erf

from exhume.observation import Observation

PHI: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "relu+tanh": lambda z: np.maximum(z, 0) + np.tanh(z),
    "gelu": lambda z: z * (1 + erf(z / math.sqrt(2))) / 2,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "softplus": lambda z: np.logaddexp(0, z),
    "erf": erf,
}
SMOOTH = ("gelu", "sigmoid", "softplus", "tanh", "erf")


@dataclass(frozen=True, eq=False)
class Fooling:
    """What an attacker is given, and the samples. `norm`: what the attacker is told of it; `told`: of their number."""

    rows: np.ndarray
    weights: np.ndarray
    activation: str
    samples: np.ndarray
    bias: np.ndarray | None = None
    norm: float | None = None
    trained: bool = False
    told: int | None = None
    made: Observation | None = None
    """What an attacker sees, where it is no layer of this form."""
    method: str = "auto"


@dataclass(frozen=True)
class Family:
    make: Callable[[Stream, Path], Fooling]
    ordinary: bool = False


FAMILIES: dict[str, Family] = {}


def family(name: str, ordinary: bool = False) -> Callable[[Callable[..., Fooling]], Callable[..., Fooling]]:
    def known(make: Callable[..., Fooling]) -> Callable[..., Fooling]:
        FAMILIES[name] = Family(make, ordinary)
        return make

    return known


# --- parts


def on_sphere(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norms, 1e-12) * math.sqrt(rows.shape[1])


def gaussian(p: int, d: int, stream: Stream) -> np.ndarray:
    return stream.standard_normal((p, d)) / math.sqrt(d)


def weigh(
    rows: np.ndarray, samples: np.ndarray, activation: str, stream: Stream, k: int = 1, bias: np.ndarray | None = None
) -> np.ndarray:
    """Weights k x p over the features of the samples: coefficients drawn, or those of a ridge fit of drawn labels."""
    features = PHI[activation](samples @ rows.T + (0 if bias is None else bias))
    labels = stream.standard_normal((len(samples), k))
    if stream.random() < 0.5:
        return labels.T @ features
    gram = features @ features.T
    ridge = 10.0 ** stream.uniform(-4, -1) * np.trace(gram) / len(gram)
    return np.linalg.solve(gram + ridge * np.eye(len(gram)), np.sign(labels)).T @ features


def sizes(
    stream: Stream, dims: tuple[int, int], count: tuple[int, int], ratio: tuple[float, float]
) -> tuple[int, int, int]:
    d, n = int(stream.integers(dims[0], dims[1] + 1)), int(stream.integers(count[0], count[1] + 1))
    return d, n, max(40, round(stream.uniform(*ratio) * d * n))


def simple(
    stream: Stream,
    rows: Callable[[int, int, Stream], np.ndarray] = gaussian,
    kinds: tuple[str, ...] = ("normal",),
    activations: tuple[str, ...] = tuple(PHI),
    dims: tuple[int, int] = (10, 30),
    count: tuple[int, int] = (2, 8),
    ratio: tuple[float, float] = (3, 8),
    k: int = 1,
    sphere: bool = True,
) -> Fooling:
    d, n, p = sizes(stream, dims, count, ratio)
    samples = drawn(str(stream.choice(kinds)), n, d, stream)
    samples = on_sphere(samples) if sphere else samples
    activation, v = str(stream.choice(activations)), rows(p, d, stream)
    norm = math.sqrt(d) if sphere else None
    return Fooling(v, weigh(v, samples, activation, stream, k), activation, samples, norm=norm)


def noisy(problem: Fooling, size: float, stream: Stream) -> Fooling:
    noise = size * problem.weights.std() * stream.standard_normal(problem.weights.shape)
    return replace(problem, weights=problem.weights + noise)


def rounded(problem: Fooling, how: str) -> Fooling:
    weights = torch.tensor(problem.weights)
    if how == "int8":
        step = float(weights.abs().max()) / 127
        return replace(problem, weights=((weights / step).round() * step).numpy())
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}[how]
    return replace(problem, weights=weights.to(kind).double().numpy())


# --- ordinary problems


@family("drawn data", ordinary=True)
def _drawn_data(stream: Stream, _: Path) -> Fooling:
    return simple(stream, kinds=DRAWN)


@family("real data", ordinary=True)
def _real_data(stream: Stream, data_dir: Path) -> Fooling:
    kind = str(stream.choice([*REAL, IMAGES]))
    samples = on_sphere(real(kind, int(stream.integers(2, 8)), stream, data_dir))
    n, d = samples.shape
    v = gaussian(round(stream.uniform(3, 6) * n * d), d, stream)
    activation = str(stream.choice(list(PHI)))
    return Fooling(v, weigh(v, samples, activation, stream), activation, samples, norm=math.sqrt(d))


@family("several outputs", ordinary=True)
def _outputs(stream: Stream, _: Path) -> Fooling:
    return simple(stream, kinds=DRAWN, k=3, ratio=(2, 5))


@family("bias, default layer", ordinary=True)
def _bias(stream: Stream, _: Path) -> Fooling:
    d, n, p = sizes(stream, (10, 30), (2, 8), (4, 8))
    samples = on_sphere(drawn(str(stream.choice(DRAWN)), n, d, stream))
    bound, activation = 1 / math.sqrt(d), str(stream.choice(list(PHI)))
    v, b = stream.uniform(-bound, bound, (p, d)), stream.uniform(-bound, bound, p)
    weights = weigh(v, samples, activation, stream, bias=b)
    return Fooling(v, weights, activation, samples, b, norm=math.sqrt(d))


@family("rows of other laws", ordinary=True)
def _laws(stream: Stream, _: Path) -> Fooling:
    def rows(p: int, d: int, stream: Stream) -> np.ndarray:
        match stream.integers(4):
            case 0:
                return stream.uniform(-1, 1, (p, d)) * math.sqrt(3 / d)
            case 1:
                return np.where(stream.random((p, d)) < 0.5, 1.0, -1.0) / math.sqrt(d)
            case 2:
                return stream.standard_t(3, (p, d)) / math.sqrt(3 * d)
            case _:
                blocks = [np.linalg.qr(stream.standard_normal((d, d)))[0] for _ in range(-(-p // d))]
                return np.concatenate(blocks)[:p]

    return simple(stream, rows, kinds=DRAWN, dims=(12, 30))


@family("one or two samples", ordinary=True)
def _few(stream: Stream, _: Path) -> Fooling:
    return simple(stream, kinds=DRAWN, count=(1, 2), ratio=(4, 10))


# --- what the table names


@family("rows that nearly repeat")
def _repeating(stream: Stream, _: Path) -> Fooling:
    jitter = 10.0 ** -stream.uniform(2, 7)

    def rows(p: int, d: int, stream: Stream) -> np.ndarray:
        copies = int(stream.integers(2, 8))
        kept = np.tile(gaussian(-(-p // copies), d, stream), (copies, 1))[:p]
        return (kept * (1 + jitter * stream.standard_normal(kept.shape)))[stream.permutation(p)]

    return simple(stream, rows, dims=(6, 16), count=(3, 10), ratio=(2, 5))


@family("block-diagonal rows")
def _blocks(stream: Stream, _: Path) -> Fooling:
    def rows(p: int, d: int, stream: Stream) -> np.ndarray:
        parts = int(stream.integers(2, 4))
        block = (np.arange(d) * parts) // d
        return gaussian(p, d, stream) * math.sqrt(parts) * (block == stream.integers(parts, size=p)[:, None])

    return simple(stream, rows, kinds=DRAWN, dims=(8, 24), count=(2, 6), ratio=(4, 8))


@family("patches of a convolution")
def _patches(stream: Stream, _: Path) -> Fooling:
    stride = int(stream.integers(1, 5))

    def rows(p: int, d: int, stream: Stream) -> np.ndarray:
        places = np.arange(0, d - 3, stride)
        v = np.zeros((p, d))
        for row in v:
            start = stream.choice(places)
            row[start : start + 4] = stream.standard_normal(4) / 2
        return v

    return simple(stream, rows, dims=(16, 24), count=(2, 5), ratio=(4, 8))


@family("d = 2 to 4")
def _low(stream: Stream, _: Path) -> Fooling:
    return simple(stream, dims=(2, 4), count=(2, 8), ratio=(10, 40))


@family("d = 5 to 10, smooth")
def _smooth(stream: Stream, _: Path) -> Fooling:
    return simple(stream, activations=SMOOTH, dims=(5, 10), count=(2, 8), ratio=(5, 20))


@family("rows with a mean")
def _mean(stream: Stream, _: Path) -> Fooling:
    def rows(p: int, d: int, stream: Stream) -> np.ndarray:
        return stream.uniform(0, 1, (p, d)) * math.sqrt(3 / d)

    return simple(stream, rows, kinds=DRAWN, dims=(5, 20), count=(2, 8), ratio=(4, 10))


@family("data far from centred")
def _shifted(stream: Stream, _: Path) -> Fooling:
    return simple(stream, kinds=("shifted", "zero-one"), dims=(5, 24), count=(3, 8), ratio=(4, 10))


@family("near-duplicates, rounded or noisy")
def _duplicates(stream: Stream, _: Path) -> Fooling:
    made = simple(stream, kinds=("near-duplicates", "clusters"), dims=(5, 24), count=(2, 8), ratio=(5, 12))
    how = str(stream.choice(["bfloat16", "float16", "int8", "noise"]))
    return noisy(made, 10.0 ** -stream.uniform(1, 4), stream) if how == "noise" else rounded(made, how)


@family("different norms")
def _norms(stream: Stream, _: Path) -> Fooling:
    smooth = ("sigmoid", "gelu", "softplus", "tanh", "relu+tanh")
    return simple(stream, kinds=DRAWN, activations=smooth, dims=(5, 24), sphere=False)


# --- further ones


@family("wrong activation declared")
def _wrong(stream: Stream, _: Path) -> Fooling:
    made = simple(stream, dims=(5, 24), ratio=(4, 10))
    others = [name for name in PHI if name != made.activation]
    return replace(made, activation=str(stream.choice(others)))


@family("V perturbed")
def _perturbed(stream: Stream, _: Path) -> Fooling:
    made = simple(stream, dims=(5, 24), ratio=(4, 10))
    off = 10.0 ** -stream.uniform(2, 4) * made.rows.std() * stream.standard_normal(made.rows.shape)
    return replace(made, rows=made.rows + off)


@family("noise on the weights")
def _noise(stream: Stream, _: Path) -> Fooling:
    return noisy(simple(stream, kinds=DRAWN, dims=(5, 24), ratio=(4, 12)), 10.0 ** -stream.uniform(0.5, 4), stream)


@family("short formats")
def _short(stream: Stream, _: Path) -> Fooling:
    made = simple(stream, kinds=DRAWN, dims=(5, 24), ratio=(4, 10))
    return rounded(made, str(stream.choice(["bfloat16", "float16", "int8"])))


@family("two models added")
def _added(stream: Stream, _: Path) -> Fooling:
    made = simple(stream, dims=(5, 24), ratio=(4, 10))
    p, d = made.rows.shape
    other = gaussian(p, d, stream)
    theirs = weigh(other, on_sphere(drawn("normal", 3, d, stream)), made.activation, stream)
    size = 10.0 ** -stream.uniform(0, 3) * made.weights.std() / theirs.std()
    return replace(made, weights=made.weights + size * theirs)


@family("few weights")
def _scarce(stream: Stream, _: Path) -> Fooling:
    return simple(stream, kinds=DRAWN, dims=(5, 20), count=(3, 8), ratio=(0.6, 2))


@family("rows nearly of low rank")
def _low_rank(stream: Stream, _: Path) -> Fooling:
    def rows(p: int, d: int, stream: Stream) -> np.ndarray:
        seen = np.where(np.arange(d) < stream.integers(2, d), 1.0, 10.0 ** -stream.uniform(1, 4))
        return gaussian(p, d, stream) * seen

    return simple(stream, rows, kinds=DRAWN, dims=(6, 24))


@family("a trained network")
def _trained(stream: Stream, _: Path) -> Fooling:
    """tanh or GELU, both layers trained by plain gradient descent; the head began at zero."""
    d, n = int(stream.integers(3, 13)), int(stream.integers(2, 8))
    p, activation = round(stream.uniform(6, 14) * d * n), str(stream.choice(["relu", "tanh", "gelu"]))
    samples = on_sphere(drawn(str(stream.choice(DRAWN)), n, d, stream))
    phi = {"relu": torch.relu, "tanh": torch.tanh, "gelu": torch.nn.functional.gelu}[activation]
    x, y = torch.tensor(samples), torch.tensor(np.sign(stream.standard_normal(n)))
    w = torch.tensor(gaussian(p, d, stream), requires_grad=True)
    a = torch.zeros(p, dtype=torch.float64, requires_grad=True)
    for _step in range(300):
        loss = (phi(x @ w.T) @ a / math.sqrt(p) - y).square().mean()
        grads = torch.autograd.grad(loss, (w, a))
        with torch.no_grad():
            w -= 0.3 * grads[0]
            a -= 0.3 * grads[1]
    weights = a.detach().numpy()[None]
    return Fooling(w.detach().numpy(), weights, activation, samples, norm=math.sqrt(d), trained=True)


@family("clusters and opposites")
def _clusters(stream: Stream, _: Path) -> Fooling:
    kinds = ("clusters", "opposite", "near-duplicates", "nearly in a plane")
    return simple(stream, kinds=kinds, dims=(5, 24), count=(4, 10))


@family("small inputs")
def _small(stream: Stream, _: Path) -> Fooling:
    scale = 10.0 ** -stream.uniform(0.5, 2)
    return simple(stream, lambda p, d, s: scale * gaussian(p, d, s), activations=SMOOTH, dims=(5, 20))


@family("large inputs")
def _large(stream: Stream, _: Path) -> Fooling:
    scale = 10.0 ** stream.uniform(0.5, 1.5)
    return simple(stream, lambda p, d, s: scale * gaussian(p, d, s), dims=(5, 20))


@family("coefficients of all sizes")
def _sizes(stream: Stream, _: Path) -> Fooling:
    made = simple(stream, dims=(5, 20), count=(3, 8))
    sizes = 10.0 ** -stream.uniform(0, 4, len(made.samples)) * np.sign(stream.standard_normal(len(made.samples)))
    return replace(made, weights=(sizes @ PHI[made.activation](made.samples @ made.rows.T))[None])


@family("a wrong number told")
def _told(stream: Stream, _: Path) -> Fooling:
    made = simple(stream, kinds=DRAWN, dims=(5, 20), count=(3, 8))
    return replace(made, told=max(1, len(made.samples) + int(stream.choice([-2, -1, 1, 3]))))


@family("low d, data of all kinds, bias")
def _low_bias(stream: Stream, _: Path) -> Fooling:
    d, n, p = sizes(stream, (2, 6), (2, 6), (10, 40))
    samples = on_sphere(drawn(str(stream.choice(DRAWN)), n, d, stream))
    activation = str(stream.choice(list(PHI)))
    v, b = gaussian(p, d, stream), stream.standard_normal(p) * 0.5
    return Fooling(v, weigh(v, samples, activation, stream, bias=b), activation, samples, b, norm=math.sqrt(d))


@family("more samples than dimensions")
def _many(stream: Stream, _: Path) -> Fooling:
    return simple(stream, kinds=DRAWN, dims=(4, 8), count=(8, 16), ratio=(4, 10))


@family("two classes")
def _classes(stream: Stream, _: Path) -> Fooling:
    """Two outputs that are each other's negative: half as many equations as there are weights."""
    made = simple(stream, kinds=DRAWN, dims=(8, 20), count=(2, 6), ratio=(0.8, 4))
    return replace(made, weights=np.concatenate([made.weights, -made.weights]))


# --- after a reviewer's attempts


def halves(p: int, d: int, leak: float, stream: Stream) -> np.ndarray:
    """Rows that see one half of a sample each, and of the other one so much."""
    block = np.arange(d) < d // 2
    return gaussian(p, d, stream) * math.sqrt(2) * np.where(block == stream.integers(2, size=p)[:, None], 1.0, leak)


@family("nearly block-diagonal, rounded or noisy")
def _nearly_blocks(stream: Stream, _: Path) -> Fooling:
    """Some in other coordinates, where no number of a row is small."""
    leak, turned = 10.0 ** -stream.uniform(1.5, 6), stream.random() < 0.3

    def rows(p: int, d: int, stream: Stream) -> np.ndarray:
        v = halves(p, d, leak, stream)
        return v @ np.linalg.qr(stream.standard_normal((d, d)))[0] if turned else v

    made = simple(stream, rows, dims=(8, 20), count=(2, 4), ratio=(8, 16))
    if stream.random() < 0.5:  # the same coefficient for all
        made = replace(made, weights=PHI[made.activation](made.samples @ made.rows.T).sum(axis=0)[None])
    how = str(stream.choice(["bfloat16", "float16", "int8", "noise"]))
    return noisy(made, 10.0 ** -stream.uniform(1, 4), stream) if how == "noise" else rounded(made, how)


@family("blocks, odd, opposite coefficients")
def _odd_blocks(stream: Stream, _: Path) -> Fooling:
    d, n, p = sizes(stream, (8, 16), (2, 4), (10, 25))
    v, activation = halves(p, d, 0.0, stream), str(stream.choice(["tanh", "erf"]))
    samples = np.concatenate([on_sphere(stream.standard_normal((n, part))) for part in (d // 2, d - d // 2)], axis=1)
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    return Fooling(v, (signs @ PHI[activation](samples @ v.T))[None], activation, on_sphere(samples), norm=math.sqrt(d))


@family("blocks, parts that add up to zero")
def _balanced_blocks(stream: Stream, _: Path) -> Fooling:
    """Centred columns, equal coefficients or such that their multiples balance."""
    d, n, p = sizes(stream, (8, 16), (2, 4), (10, 25))
    v, activation = halves(p, d, 0.0, stream), str(stream.choice(["relu", "softplus", "gelu", "sigmoid"]))
    samples, alphas = stream.standard_normal((n, d)), stream.uniform(0.5, 1.5, n) * np.sign(stream.standard_normal(n))
    samples[-1, d // 2 :] = -(alphas[:-1] @ samples[:-1, d // 2 :]) / alphas[-1]
    return Fooling(v, (alphas @ PHI[activation](samples @ v.T))[None], activation, samples)


@family("over 1,200 unknowns")
def _large_problem(stream: Stream, _: Path) -> Fooling:
    """Ordinary rows, columns that are seen faintly, or two halves that hardly anything joins."""
    d, n = int(stream.integers(300, 420)), int(stream.integers(4, 6))
    p, kind = round(stream.uniform(3, 5) * d * n), int(stream.integers(3))
    samples = drawn(str(stream.choice(["normal", "sparse", "clusters"])), n, d, stream)
    v = gaussian(p, d, stream) if kind < 2 else halves(p, d, 10.0 ** -stream.uniform(2, 6), stream)
    if kind == 1:
        few = int(stream.integers(1, 20))
        v[:, -few:] *= 10.0 ** -stream.uniform(2, 5)
        samples[:, -few:] *= math.sqrt(d / few) / 2
    samples, activation = on_sphere(samples), str(stream.choice(["relu", "gelu", "tanh", "softplus"]))
    weights = weigh(v, samples, activation, stream)
    made = Fooling(v, weights, activation, samples, norm=math.sqrt(d))
    return rounded(made, "float16") if stream.random() < 0.5 else made


@family("held-out rows of another kind")
def _late(stream: Stream, _: Path) -> Fooling:
    """The last tenth are near-copies of others, of each other, or nearly nothing; or copies follow 600 rows."""
    kind = int(stream.integers(4))

    def rows(p: int, d: int, stream: Stream) -> np.ndarray:
        v, late = gaussian(p, d, stream), max(2, p // 10)
        jitter = 1 + 1e-5 * stream.standard_normal((p, d))
        if kind == 0:
            v[-late:] = v[stream.integers(p - late, size=late)] * jitter[-late:]
        if kind == 1:
            v[-late:] = v[:1] * jitter[-late:]
        if kind == 2:
            v[-late:] *= 1e-3
        if kind == 3:
            first = min(600, p // 2)
            v[first:] = v[stream.integers(min(first, 3 * d), size=p - first)] * jitter[first:]
        return v

    return simple(stream, rows, dims=(6, 20), count=(3, 8), ratio=(2, 8))
