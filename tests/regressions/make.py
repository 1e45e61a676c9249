"""Writes the regression corpus: small observations, the truth, and what this version finds in them.

    python tests/regressions/make.py

The files stay as they are, so that a change of training cannot hide a loss: only a case whose folder is not there yet
is made. Look at what was found before it is kept.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.running.loop import Limits
from exhume.attacks.running.prepare import prepare, run
from exhume.attacks.running.settings import AttackSettings
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.known import Known
from exhume.metrics.errors import evaluate
from exhume.observation import Knowledge, Observation, load_observation, save_observation
from exhume_papers.making.training import train_victim
from exhume_papers.victims.descent_loop import Surroundings
from exhume_papers.victims.random_features import RandomFeaturesConfig
from exhume_papers.victims.two_layer import TwoLayerConfig

HERE = Path(__file__).parent
Made = tuple[Observation, Tensor]


@dataclass(frozen=True)
class Case:
    """`told` is the number of samples that the attack is told; an informed one is given all samples but the first."""

    name: str
    make: Callable[[Path], Made]
    method: str = "auto"
    told: int | None = None
    iterations: int | None = None


@dataclass(frozen=True)
class Found:
    outcome: str
    candidates: int
    error: float


def sphere(samples: int, dim: int, seed: int, **more: int) -> DataConfig:
    return DataConfig.parse(name="sphere", samples=samples, dim=dim, seed=seed, dtype="float64", **more)


def rf(params: int, samples: int, dim: int, name: str = "relu", seed: int = 0) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        data = load(sphere(samples, dim, seed))
        victim = train_victim(RandomFeaturesConfig(params=params, activation=name), data, folder, Surroundings())
        return victim.observation, data.inputs

    return make


def three_outputs(folder: Path) -> Made:
    """Planted: no training."""
    samples = load(sphere(3, 8, 6)).inputs
    features = RidgeFeatures(DrawnRows(2, 200, 8), activation("relu"))
    coefficients = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Observation(features, coefficients @ features(samples), Knowledge(norm=math.sqrt(8))), samples


def two_layer(folder: Path) -> Made:
    """Samples in 3 of 20 dimensions; the first layer is known before and after training."""
    data = load(sphere(5, 20, 0, subspace=3))
    model = TwoLayerConfig(width=300, seed=0, knows_first_layer=True)
    return train_victim(model, data, folder, Surroundings()).observation, data.inputs


CASES = (
    Case("relu", rf(200, 3, 8)),
    Case("relu-one-sample", rf(40, 1, 4, seed=5)),
    Case("tanh", rf(200, 3, 8, "tanh", seed=1)),
    Case("gelu", rf(150, 2, 6, "gelu", seed=3)),
    Case("below-the-threshold", rf(20, 3, 8, seed=2)),
    Case("published", rf(120, 2, 6), method="heavy-ball", told=2, iterations=300),
    Case("three-outputs", three_outputs),
    Case("two-layer-subspace", two_layer),
    Case("informed", rf(60, 3, 8, seed=4), method="informed"),
)


def attack(case: Case, folder: Path) -> Found:
    """What is found in the stored files."""
    observation = load_observation(folder / "observation.safetensors")
    truth = load_file(folder / "truth.safetensors")["inputs"]
    if case.method == "informed":
        observation = replace(observation, known=Known(truth[1:]))
        truth = truth[:1]
    options = {} if case.iterations is None else {"iterations": case.iterations}
    settings = AttackSettings(case.method, options, samples=case.told, limits=Limits(300.0))
    found = run(prepare(observation, settings)).reconstruction
    error = evaluate(truth, found.candidates.to(truth.dtype)).error
    return Found(found.outcome.value, len(found.candidates), error)


def make(case: Case, folder: Path) -> None:
    folder.mkdir()
    observation, truth = case.make(folder)
    save_observation(observation, folder / "observation.safetensors")
    save_file({"inputs": truth.contiguous()}, folder / "truth.safetensors")
    found = attack(case, folder)
    (folder / "expected.json").write_text(json.dumps(asdict(found), indent=2) + "\n")
    print(f"{case.name}: {found}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in CASES:
        if not (HERE / case.name).exists():
            make(case, HERE / case.name)
