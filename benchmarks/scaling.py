"""Seconds and bytes of the split solver against n, d and p: measured, fitted, and what follows for larger machines.

    OMP_NUM_THREADS=1 python benchmarks/scaling.py [--keep scaling.json] [--plot docs/images/scaling.png]
    python benchmarks/scaling.py --load scaling.json

A point is a few iterations of the split solver on held rows, and the CPU time of the parts of one more, the best of
several. The costs of `scaling_model.py` are fitted to these parts and held against whole attacks, which also say how
many iterations an attack takes. `scaling_forecast.py` puts assumed rates of GPUs in the place of the fitted ones; the
number of operations stays. The points take seconds, the attacks and the comparison of two ranks a minute.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from scaling_forecast import OVERSAMPLED, RATIO, Here, print_forecasts
from scaling_measured import ATTACK_DIM, Attack, Measured, Point
from scaling_model import PARTS, Costs, Memory, fit_costs, fit_memory, fit_power

from exhume.activations import activation
from exhume.attacks.foundation.ranks import Ranks
from exhume.attacks.running.joining import joined
from exhume.attacks.running.loop import run_attack
from exhume.attacks.single_layer.gauss_newton import linearise
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.proposals import random_rows
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.single_layer.split_step import split_move
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold
from exhume.metrics.errors import reconstruction_error
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

# m, d, rows; the last has more candidates than dimensions
POINTS = (
    (10, 300, 8_192),
    (40, 300, 16_384),
    (80, 300, 16_384),
    (10, 768, 8_192),
    (40, 768, 16_384),
    (80, 768, 16_384),
    (10, 3072, 8_192),
    (40, 3072, 8_192),
    (80, 3072, 8_192),
    (96, 64, 8_192),
)
# each in a process of its own, where the peak of its memory is looked at
LARGER = ((10, 300, 15_360), (40, 300, 61_440), (40, 3072, 49_152), (96, 64, 61_440))
TOGETHER = (40, 768, 122_880)
ATTACKS = (5, 10, 20, 40)
EARLIER_ITERATIONS, REPETITIONS = 2, 4


class CountingRanks(Ranks):
    """Ranks that keep count of what is summed; one process sends nothing."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(ranks.rank, ranks.size, ranks.beside, ranks.store)
        self.sizes: list[int]
        object.__setattr__(self, "sizes", [])

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        self.sizes.append(values.numel() * values.element_size())
        return super().sum(values)

    def same(self, values: torch.Tensor) -> torch.Tensor:
        self.sizes.append(values.numel() * values.element_size())
        return super().same(values)


def measure_here(m: int, d: int, rows: int, repetitions: int) -> Point | None:
    """In this process, or on this rank; the first one hands out the result."""
    with joined() as plain:
        ranks = CountingRanks(plain)
        before = peak_bytes()
        features = ranks.share.of(RidgeFeatures(DrawnRows(0, rows, d), activation("relu")))
        features = replace(features, rows=hold(features.rows))
        generator = torch.Generator().manual_seed(0)
        samples = random_rows(round(m / OVERSAMPLED), d, math.sqrt(d), generator, torch.zeros(1))
        coefficients = torch.randn(1, len(samples), generator=generator)
        loss = SpanLoss(features, coefficients @ features(samples), ranks=ranks)
        fit = loss.fit(random_rows(m, d, math.sqrt(d), generator, torch.zeros(1)))
        for refined in Levenberg(products=0).refine(loss, fit, math.sqrt(d), EARLIER_ITERATIONS):
            fit = refined
        cpu, wall = dict.fromkeys(PARTS, math.inf), math.inf
        for _ in range(repetitions):
            ranks.sizes.clear()
            began, times = time.perf_counter(), [time.process_time()]
            model = linearise(loss, fit)
            times.append(time.process_time())
            move = split_move(loss, model, 0.1)
            times.append(time.process_time())
            loss.fit(fit.candidates + move.change)
            times.append(time.process_time())
            wall = min(wall, time.perf_counter() - began)
            for name, start, stop in zip(("linearise", "move", "fit"), times[:-1], times[1:], strict=True):
                cpu[name] = min(cpu[name], stop - start)
        products = sum(size == 4 * m * min(m, d) for size in ranks.sizes)
        products -= 2 if m >= d else 0  # the gradient and the candidates are of that size, too
        grown = peak_bytes() - before
        return Point(m, d, rows, products, cpu, wall, grown, sum(ranks.sizes)) if ranks.first else None


def peak_bytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(float(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure_apart(m: int, d: int, rows: int, repetitions: int, ranks: int) -> Point:
    """On ranks of their own, one thread each."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*launcher, __file__, "--point", f"{m},{d},{rows},{repetitions}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return Point(**json.loads(done.stdout.splitlines()[-1]))


def measure(point: tuple[int, int, int], repetitions: int = REPETITIONS) -> Point:
    found = measure_here(*point, repetitions)
    assert found is not None, "one process is the first of its kind"
    return found


def attack(n: int) -> Attack:
    data = load(DataConfig(name="sphere", samples=n, dim=ATTACK_DIM, seed=0))
    config = RandomFeaturesConfig(params=round(RATIO * n * ATTACK_DIM), seed=0)
    observation = train_random_features(config, data, draw_rows(config, ATTACK_DIM)).observation.knowing(None)
    began = time.process_time()
    done = run_attack(observation, SplitNewton())
    cpu = time.process_time() - began
    sweeps, before = dict[int, float](), 0.0
    for line in done.trace:
        m = int(line["candidates"])
        sweeps[m] = sweeps.get(m, 0.0) + (line["passes"] - before) * config.params
        before = line["passes"]
    found = done.reconstruction
    error = reconstruction_error(data.inputs, found.candidates)
    return Attack(n, config.params, found.iterations, found.passes, cpu, error, sorted(sweeps.items()))


def best_rate(work: float, act: object) -> float:
    assert callable(act)
    best = math.inf
    for _ in range(5):
        began = time.process_time()
        act()
        best = min(best, time.process_time() - began)
    return work / best


def measure_all() -> Measured:
    source, target = torch.ones(2**25), torch.empty(2**25)  # more than any cache holds
    square = torch.randn(768, 768, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Measured(
        points=[measure(point) for point in POINTS],
        larger=[measure_apart(*point, repetitions=2, ranks=1) for point in LARGER],
        alone=measure_apart(*TOGETHER, repetitions=20, ranks=1),
        together=measure_apart(*TOGETHER, repetitions=20, ranks=2),
        attacks=[attack(n) for n in ATTACKS],
        bandwidth=best_rate(8 * 2**25, lambda: target.copy_(source)),
        double_flops=best_rate(2 * 768**3, lambda: square @ square),
    )


def print_points(points: list[Point], larger: list[Point], costs: Costs, needed: Memory) -> None:
    print("     m     d     rows  products | CPU s, predicted | summed kB, predicted")
    for point in points:
        shape = point.shape
        print(
            f"{point.m:6d} {point.d:5d} {point.rows:8d} {point.products:9.0f} | {sum(point.cpu.values()):7.3f} "
            f"{costs.total(shape):8.3f} | {point.summed_bytes / 1e3:8.0f} {shape.summed_bytes / 1e3:11.0f}"
        )
    print("\n     m     d     rows | peak MB, predicted")
    for point in larger:
        print(
            f"{point.m:6d} {point.d:5d} {point.rows:8d} | {point.grown / 1e6:7.0f} "
            f"{needed.total(point.shape) / 1e6:10.0f}"
        )
    print("\nfitted to the parts of these points, one thread:")
    print(f"  reads of V      {1 / costs.reads / 1e9:8.1f} GB/s" if costs.reads else "  reads of V          free")
    print(f"  operations      {1 / costs.passes / 1e9:8.1f} GFLOP/s")
    for name in ("fit_elements", "slope_elements", "inner_elements"):
        print(f"  {name:14s}  {getattr(costs, name) * 1e9:8.2f} ns each")
    print(f"  small           {costs.small * 1e9:8.2f} ns for each of m^3 + m^2 d")
    print(f"  a call          {costs.calls * 1e3:8.2f} ms")
    print(f"  memory          V, {needed.matrices:.1f} matrices of m x rows, and {needed.constant / 1e6:.0f} MB")


def print_together(alone: Point, together: Point) -> None:
    print(
        f"\nm, d, rows = {TOGETHER} on two ranks, one thread each: {sum(together.cpu.values()):.2f} CPU s each for "
        f"{sum(alone.cpu.values()):.2f} on one; {together.wall:.2f} s on the clock for {alone.wall:.2f}"
    )


def print_attacks(attacks: list[Attack], costs: Costs, products: float, power: tuple[float, float]) -> None:
    print(f"\nwhole attacks, sphere, d = {ATTACK_DIM}, p = {RATIO:g}dn, n not told:")
    print("     n  iterations   passes  full iterations | CPU s, predicted |    rho")
    for found in attacks:
        print(
            f"{found.n:6d} {found.iterations:11d} {found.passes:8.0f} {found.full_iterations:16.1f} | "
            f"{found.cpu:6.1f} {found.predicted(costs, products):9.1f} | {found.error:.1e}"
        )
    print(f"full iterations ~ {power[0]:.1f} n^{power[1]:.2f}")


def draw(measured: Measured, costs: Costs, needed: Memory, products: float, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    points, attacks = measured.points, measured.attacks
    names = [f"{point.m}, {point.d}" for point in points]
    panels = (
        ("CPU seconds of an iteration", names, [(costs.total(p.shape), sum(p.cpu.values())) for p in points]),
        (
            "peak memory, MB (m, d)",
            [f"{point.m}, {point.d}" for point in measured.larger],
            [(needed.total(p.shape) / 1e6, p.grown / 1e6) for p in measured.larger],
        ),
        (
            "CPU seconds of an attack",
            [f"n = {one.n}" for one in attacks],
            [(one.predicted(costs, products), one.cpu) for one in attacks],
        ),
    )
    figure, axes = pyplot.subplots(1, len(panels), figsize=(12, 3.8))
    for axis, (title, labels, pairs) in zip(axes, panels, strict=True):
        numbers = [number for pair in pairs for number in pair]
        ends = [min(numbers) / 1.5, max(numbers) * 1.5]
        axis.loglog(ends, ends, color="0.7", linewidth=1)
        axis.loglog(*zip(*pairs, strict=True), "o", markersize=4)
        axis.set(title=title, xlabel="predicted", ylabel="measured", xlim=ends, ylim=ends)
        for label, place in zip(labels, pairs, strict=True):
            axis.annotate(label, place, (5, -8), textcoords="offset points", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="where to keep what was measured")
    parser.add_argument("--load", type=Path, help="measure nothing, use what was kept")
    parser.add_argument("--plot", help="where to draw measured against predicted")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        point = measure_here(*map(int, options.point.split(",")))
        if point is not None:
            print(json.dumps(asdict(point)))
        return
    measured = Measured.load(options.load) if options.load else measure_all()
    if options.keep:
        options.keep.write_text(json.dumps(asdict(measured)))
    points, alone, together = measured.points, measured.alone, measured.together
    parts = [(point, name) for point in points for name in PARTS]
    costs = fit_costs([point.shape.part(name) for point, name in parts], [point.cpu[name] for point, name in parts])
    needed = fit_memory([point.shape for point in measured.larger], [point.grown for point in measured.larger])
    print_points(points, measured.larger, costs, needed)
    print_together(alone, together)
    products = sum(point.products for point in points) / len(points)
    power = fit_power([one.n for one in measured.attacks], [one.full_iterations for one in measured.attacks])
    print_attacks(measured.attacks, costs, products, power)
    fewest = measured.attacks[-1].full_iterations
    print_forecasts(Here(costs, needed, measured.bandwidth, measured.double_flops), fewest, power)
    if options.plot:
        draw(measured, costs, needed, products, options.plot)


if __name__ == "__main__":
    main()
