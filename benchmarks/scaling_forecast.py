"""What an iteration would take elsewhere: counted operations over assumed rates. Nothing here is measured on a GPU."""

from dataclasses import dataclass

from scaling_model import Costs, Memory, Shape, Terms

CIFAR_DIM, RATIO, OVERSAMPLED = 3072, 4.0, 1.25
SAMPLES = (1_000, 10_000)
SUMS_AN_ITERATION = 12  # besides two for each inner product


@dataclass(frozen=True)
class Machine:
    """Assumed rates of one GPU and of the network between several."""

    gpus: int
    flops: float = 40e12  # sustained, float32
    small_flops: float = 1e12  # sustained, factorisations in float64
    bandwidth: float = 2e12  # bytes/s of its memory, sustained
    memory: float = 80e9
    network: float = 100e9  # bytes/s that a rank sends in an all-reduce
    latency: float = 1e-4  # seconds of a sum of hardly anything


MACHINES = (Machine(1), Machine(8), Machine(100, network=25e9))


@dataclass(frozen=True)
class Here:
    """What was measured here and is carried over, besides the counts."""

    costs: Costs
    memory: Memory
    bandwidth: float
    double_flops: float

    def element_bytes(self, counts: Terms) -> float:
        """The time for the work on single elements, as bytes that memory moves in it."""
        named = ("fit_elements", "slope_elements", "inner_elements")
        return self.bandwidth * sum(getattr(self.costs, name) * getattr(counts, name) for name in named)

    def small_operations(self, counts: Terms) -> float:
        return self.double_flops * self.costs.small * counts.small


@dataclass(frozen=True)
class Forecast:
    """Seconds of one iteration by their cause, and bytes on each GPU."""

    n: int
    gpus: int
    tight: bool
    bytes_each: float
    fits: bool
    passes: float
    products: float
    elements: float
    small: float
    sums: float

    @property
    def iteration(self) -> float:
        return self.passes + self.products + self.elements + self.small + self.sums


def forecast(n: int, machine: Machine, here: Here, tight: bool) -> Forecast:
    """`tight`: V in bfloat16, and no m × rows matrix kept, for which there is one pass more. Not built."""
    shape = Shape(round(OVERSAMPLED * n), CIFAR_DIM, round(RATIO * CIFAR_DIM * n), ranks=machine.gpus)
    counts = shape.whole()
    each = shape.row_bytes / 2 if tight else here.memory.total(shape)
    messages = 2 * shape.products + SUMS_AN_ITERATION
    sums = 2 * shape.summed_bytes / machine.network + messages * machine.latency
    return Forecast(
        n=n,
        gpus=machine.gpus,
        tight=tight,
        bytes_each=each,
        fits=each <= machine.memory,
        passes=(1.5 if tight else 1.0) * max(counts.passes / machine.flops, counts.reads / machine.bandwidth),
        products=counts.products / machine.flops,
        elements=here.element_bytes(counts) / machine.bandwidth,
        small=here.small_operations(counts) / machine.small_flops,
        sums=sums if machine.gpus > 1 else 0.0,
    )


def print_forecasts(here: Here, fewest: float, power: tuple[float, float]) -> None:
    """Hours are those of as many full iterations as the largest attack took here, and of as many as the power law."""
    print(
        f"\nEXTRAPOLATED with assumed rates ({MACHINES[0]})\nCIFAR-10, d = {CIFAR_DIM}, p = {RATIO:g}dn, "
        f"m = {OVERSAMPLED} n, 30 inner products"
    )
    print(
        "     n  GPUs  how        GB each  fits |  passes  products  elements     small     sums | s/iteration | hours"
    )
    for n in SAMPLES:
        most = power[0] * n ** power[1]
        for machine in MACHINES:
            for tight in (False, True):
                one = forecast(n, machine, here, tight)
                hours = sorted(one.iteration * count / 3600 for count in (fewest, most))
                print(
                    f"{n:6d} {one.gpus:5d}  {'tight' if tight else 'as it is':9s} {one.bytes_each / 1e9:8.0f}  "
                    f"{'yes' if one.fits else 'no':4s} | {one.passes:7.2f} {one.products:9.2f} {one.elements:9.2f} "
                    f"{one.small:9.2f} {one.sums:8.2f} | {one.iteration:9.1f} | {hours[0]:.1f} to {hours[1]:.1f}"
                )
        print(f"       full iterations: {fewest:.0f} as measured, {most:.0f} by the power law")
