"""What the step of gradient descent on the logistic loss does to the coefficients, and to an attack on the weights.

python benchmarks/logistic_step.py [--dim 100] [--samples 100] [--ratios 1,3] [--seed 300] [--steps 20000] [--attack]

The published runs sum the loss over the samples and take the step 1e-3. On the mean loss it is n times smaller.
Gradient descent is stable up to η λ_max / 4 = 2; the default of `exhume train rf --fit logistic` is 1.
"""

import argparse
from collections.abc import Iterator

import torch

from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.features.ridge import RidgeFeatures
from exhume.metrics.errors import recovered_fraction
from exhume_papers.victims.random_features import RandomFeaturesConfig, Victim, draw_rows, train_random_features

STEP = 1e-3


def steps_of(samples: int) -> Iterator[tuple[str, float | None]]:
    yield f"sum, {STEP:g}", STEP
    yield f"mean, {STEP:g}", STEP / samples
    yield "sum, 4 / λ_max", None


def sharpness(victim: Victim, data: Dataset) -> float:
    """λ_max / 4: the largest curvature that the summed loss can have."""
    assert isinstance(victim.observation.features, RidgeFeatures)
    features = victim.observation.features(data.inputs).double()
    return float(torch.linalg.eigvalsh(features @ features.T)[-1]) / 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--ratios", default="1,3", help="p / (d n)")
    parser.add_argument("--seed", type=int, default=300)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--attack", action="store_true")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds per attack")
    options = parser.parse_args()
    d, n = options.dim, options.samples
    data = load(DataConfig(name="sphere", samples=n, dim=d, seed=options.seed, label_rule="sign"))
    for ratio in map(float, options.ratios.split(",")):
        for name, step in steps_of(n):
            config = RandomFeaturesConfig(
                params=round(ratio * d * n), seed=options.seed, fit="logistic", steps=options.steps, step_size=step
            )
            victim = train_random_features(config, data, draw_rows(config, d))
            curvature, sizes = sharpness(victim, data), victim.coefficients.abs()
            print(
                f"p={ratio:g}dn, {name}: η λ_max / 4 = {(step or 1 / curvature) * curvature:.2f}, "
                f"loss {victim.training_loss:.1e}, largest coefficient over least {sizes.max() / sizes.min():.1f}",
                flush=True,
            )
            if options.attack:
                observation = victim.observation.knowing(None)
                found = run_attack(observation, SplitNewton(), limits=Limits(options.budget)).reconstruction
                share = recovered_fraction(data.inputs, found.candidates)
                print(
                    f"  {share:.0%} of the samples recovered, {found.outcome.value}, "
                    f"{found.passes:.0f} passes, {found.seconds:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
