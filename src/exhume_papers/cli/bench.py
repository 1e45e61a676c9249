"""`exhume bench`: side by side with the published attack."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from exhume.cli.output import print_json, say
from exhume.requests.kinds import Seconds, Seed
from exhume.requests.request import Option, Request
from exhume.units import duration_text

if TYPE_CHECKING:
    from exhume_papers.studies.bench import Timing, Trial


class BenchRequest(Request):
    command: ClassVar[str] = "bench"

    out: Annotated[Path, Option("Folder for bench.json and the plots.")] = Path("bench")
    dim: Annotated[int, Option("d of the sphere.")] = 100
    samples: Annotated[int, Option("n.")] = 20
    ratio: Annotated[float, Option("p/(dn).")] = 10.0
    activation: Annotated[str, Option("As in 'exhume train rf'.")] = "relu"
    published: Annotated[Seconds, Option("At most so long for the published attack.", text=duration_text)] = 600.0
    steps: Annotated[int, Option("At most so many steps of the published attack.")] = 60_000
    success: Annotated[
        str | None, Option("Also success against p/(dn), e.g. 1,1.5,2,3: recovered share of the trials.")
    ] = None
    trials: Annotated[int, Option("Seeds for each p/(dn) of --success.")] = 5
    success_dim: Annotated[int, Option("d of the cases of --success.")] = 100
    success_samples: Annotated[int, Option("n of the cases of --success.")] = 20
    success_budget: Annotated[
        Seconds, Option("Time for each attack of --success, on one core.", text=duration_text)
    ] = 60.0
    ours_only: Annotated[bool, Option("--success without the published attack.")] = False
    seed: Seed = 0


def bench(request: BenchRequest, json: bool) -> None:
    """Run exhume's attack and the published one on the same weights: seconds and passes to rho <= 0.05.

    Example: exhume bench --published 60s
    """
    from exhume.files import SCHEMA, write_json
    from exhume_papers.figures.bench_figures import draw_coefficients, draw_race, draw_success, recovered_by_coefficient
    from exhume_papers.making.victim_values import parse_ratios
    from exhume_papers.studies.bench import METHODS, BenchCase, compare, speedup, success_curve

    ratios = parse_ratios(request.success) if request.success else ()
    out, activation = _ready(request.out), request.activation
    case = BenchCase(request.dim, request.samples, request.ratio, activation, request.seed)
    timings = compare(case, request.published, lambda line: say(line, as_json=True), request.steps)
    _table(timings, json)
    results: dict[str, Any] = {"schema": SCHEMA, "case": case.title(), **speedup(timings)}
    results |= {method: _numbers(timing) for method, timing in timings.items()}
    draw_race({name: timing.curve for name, timing in timings.items()}, case.title(), out / "race.png")
    if ratios:
        base = BenchCase(request.success_dim, request.success_samples, activation=activation)
        curves: dict[str, list[Trial]] = {}
        for method in METHODS[:1] if request.ours_only else METHODS:
            curves[method] = []
            for trial in success_curve(base, ratios, request.trials, method, request.success_budget):
                curves[method].append(trial)
                say(
                    f"{method} p/(dn) {trial.ratio:g} seed {trial.seed}: error {trial.timing.error:.2g}, "
                    f"{trial.timing.outcome}, {trial.timing.seconds:.1f} s",
                    as_json=True,
                )
        results["success"] = {method: _success(found, ratios) for method, found in curves.items()}
        limit = duration_text(request.success_budget)
        title = f"d={base.dim} n={base.samples} {activation}, {request.trials} seeds each, {limit} at most"
        draw_success(results["success"], title, out / "success.png")
        pairs = _coefficients(curves[METHODS[0]])
        results["recovered_by_coefficient"] = {ratio: recovered_by_coefficient(found) for ratio, found in pairs.items()}
        draw_coefficients(pairs, f"exhume: {title}", out / "coefficients.png")
    write_json(out / "bench.json", results)
    bound = "at least " if results["speedup_is_lower_bound"] else ""
    if results["speedup"]:
        say(f"speedup to rho <= 0.05: {bound}{results['speedup']:.0f} times; plots and bench.json in {out}", json)
    if json:
        print_json(results)


def _ready(out: Path) -> Path:
    from exhume.errors import ExhumeError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ExhumeError(f"expected a folder to write to at {out}, found: {problem.strerror}") from problem
    return out


def _numbers(timing: "Timing") -> dict[str, Any]:
    left_out = ("curve", "distances", "coefficients")
    return {name: value for name, value in vars(timing).items() if name not in left_out}


def _success(found: list["Trial"], ratios: tuple[float, ...]) -> dict[str, float]:
    shares = {}
    for ratio in ratios:
        errors = [trial.timing.error for trial in found if trial.ratio == ratio]
        shares[f"{ratio:g}"] = sum(error < 0.01 for error in errors) / len(errors)
    return shares


def _coefficients(found: list["Trial"]) -> dict[str, list[tuple[float, float]]]:
    """Of each sample, by p/(dn): the size of its coefficient relative to the largest, and its error."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for trial in found:
        largest = max(trial.timing.coefficients)
        sizes = (coefficient / largest for coefficient in trial.timing.coefficients)
        pairs.setdefault(f"{trial.ratio:g}", []).extend(zip(sizes, trial.timing.distances, strict=True))
    return pairs


def _table(timings: dict[str, "Timing"], json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for column in ("attack", "s to 0.05", "passes to 0.05", "seconds", "passes", "final rho", "outcome", "peak MB"):
        table.add_column(column, justify="left" if column in ("attack", "outcome") else "right")
    for name, timing in timings.items():
        table.add_row(
            name,
            "never" if timing.seconds_to_target is None else f"{timing.seconds_to_target:.2f}",
            "never" if timing.passes_to_target is None else f"{timing.passes_to_target:.0f}",
            f"{timing.seconds:.1f}",
            f"{timing.passes:.0f}",
            f"{timing.error:.1e}",
            timing.outcome,
            f"{timing.peak_memory_mb:.0f}",
        )
    Console(stderr=json, width=110).print(table)
