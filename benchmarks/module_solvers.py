"""Which solver for features of any network: L-BFGS or Gauss-Newton with conjugate gradients, side by side.

    python benchmarks/module_solvers.py RUN... [--passes 1200] [--starts 3]

RUN: folders of `exhume train resnet`, `vit` or `module`. Both solvers minimise the same projected loss from the same
random candidates (as many as there are samples) in the same coordinates: plain ones, and those that move coarse
structure first. A pass is an evaluation of the network or a backward sweep, for all candidates; a product of the
Gauss-Newton matrix is three of them (the push is two backward sweeps). Printed are medians over the starts.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor

from exhume.attacks.foundation.conjugate_gradients import conjugate_gradients
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.foundation.projection import Projection
from exhume.attacks.modules.case import ModuleCase
from exhume.attacks.modules.coordinates import Coordinates
from exhume.attacks.modules.problem import ModuleProblem
from exhume.attacks.modules.quasi_newton import QuasiNewton
from exhume.attacks.modules.span import GeneralSpanLoss
from exhume.experiments.run import RunFolder
from exhume.features.module import Linearisation
from exhume.metrics.errors import reconstruction_error

PRODUCTS, FORCING = 20, 0.1


def lbfgs(loss: GeneralSpanLoss, coordinates: Coordinates, z: Tensor, passes: int) -> Projection:
    rule = QuasiNewton(gain=0.0)
    start = rule.start(loss, coordinates, z)
    fit = start.point.fit
    for run in rule.refine(loss, coordinates, start, 10**9):
        fit = run.point.fit
        if loss.passes >= passes:
            break
    return fit


class GaussNewton:
    """The model of Kaufman's variable projection at z: dr = −P_⊥ Σ_i α_i J_i dx_i, with dx = (∂x/∂z) dz."""

    def __init__(self, loss: GeneralSpanLoss, coordinates: Coordinates, z: Tensor) -> None:
        self.loss, self.coordinates, self.z = loss, coordinates, z
        candidates = coordinates.rows_at(z)
        self.point = Linearisation(loss.features, candidates)
        self.fit = loss._project(candidates, self.point.values)
        self.weights = self.fit.coefficients.to(z.dtype)
        self.descent = self.pull(self.fit.residual)

    def pull(self, values: Tensor) -> Tensor:
        self.loss.counter.total += 1
        return self.coordinates.gradient_at(self.z, self.point.pull(self.weights @ values))

    def curve(self, directions: Tensor) -> Tensor:
        moved = torch.func.jvp(self.coordinates.rows_at, (self.z,), (directions,))[1]
        self.loss.counter.total += 2
        pushed = self.weights.T @ self.point.push(moved)
        features = self.fit.features
        onto = self.fit.gram_inverse @ (features @ pushed.T).double()
        return self.pull(pushed - onto.to(pushed.dtype).T @ features)


def gauss_newton(loss: GeneralSpanLoss, coordinates: Coordinates, z: Tensor, passes: int) -> Projection:
    damping, model = 0.1, GaussNewton(loss, coordinates, z)
    scale = float((model.descent * model.curve(model.descent)).sum() / model.descent.square().sum())
    while loss.passes < passes:
        step = solved(model, damping * scale)
        trial = GaussNewton(loss, coordinates, model.z + step)
        if trial.fit.loss < model.fit.loss:
            model, damping = trial, max(damping / 3, 1e-8)
        else:
            damping *= 4
    return model.fit


def solved(model: GaussNewton, shift: float) -> Tensor:
    return conjugate_gradients(lambda x: model.curve(x) + shift * x, model.descent, PRODUCTS, FORCING**2).x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--passes", type=int, default=1200)
    parser.add_argument("--starts", type=int, default=3)
    options = parser.parse_args()
    print("| run | coordinates | solver | loss | rho | seconds |\n| --- | --- | --- | --- | --- | --- |")
    for path in options.runs:
        compare(path, options.passes, options.starts)


def compare(path: Path, passes: int, starts: int) -> None:
    run = RunFolder(path)
    truth, observation = run.truth().inputs, run.observation(None)
    resources = Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    problem: ModuleProblem = ModuleCase.open(observation, 0, 0.05, resources).problem
    like = torch.zeros(0, observation.d)
    charts = {"plain": Coordinates.plain(problem.norm)}
    if problem.image_shape is not None:
        charts["smooth"] = Coordinates.smooth(problem.norm, problem.image_shape, 1.0, like)
    for name, coordinates in charts.items():
        for solver in (lbfgs, gauss_newton):
            losses, errors, began = [], [], time.perf_counter()
            for start in range(starts):
                drawn = torch.randn(truth.shape, generator=torch.Generator().manual_seed(start))
                z = coordinates.coordinates_of(coordinates.rows_at(drawn))
                problem.loss.counter.total = 0.0
                fit = solver(problem.loss, coordinates, z, passes)
                losses.append(fit.loss)
                errors.append(reconstruction_error(truth, fit.candidates))
            seconds = (time.perf_counter() - began) / starts
            middle = f"{statistics.median(losses):.1e} | {statistics.median(errors):.2f}"
            print(f"| {path.name} | {name} | {solver.__name__} | {middle} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
