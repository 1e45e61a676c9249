"""`exhume count`: how many samples the weights were trained on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from exhume.cli.output import print_json, say
from exhume.requests.kinds import Factory, Run, Seconds, Seed
from exhume.requests.request import Option, Request
from exhume.units import duration_text

if TYPE_CHECKING:
    from exhume.experiments.run import RunFolder
    from exhume_papers.studies.count import CountEstimate


class CountRequest(Request):
    command: ClassVar[str] = "count"

    run: Run
    first: Annotated[int, Field(ge=1), Option("The first number to try.", flag="--from")] = 2
    last: Annotated[int, Field(ge=1), Option("The last one.", flag="--to")] = 30
    by: Annotated[int, Field(ge=1), Option("Raise it by so many.")] = 1
    go_on: Annotated[bool, Option("Do not stop at the first duplicate.")] = False
    cosine: Annotated[float, Option("Candidates with a larger |cosine| are duplicates.")] = 0.95
    step: Annotated[float | None, Option("Of the published attack; default: as published.")] = None
    iterations: Annotated[int, Option("At most so many steps for each number.")] = 60_000
    budget: Annotated[Seconds, Option("At most so long for each number, e.g. 90s, 10m.", text=duration_text)] = 600.0
    model: Factory = None
    seed: Seed = 0


def count(request: CountRequest, json: bool) -> None:
    """Estimate how many samples RUN was trained on: raise the number until the published attack finds duplicates, and
    ask the attack that is not told it.

    Example: exhume count runs/a --from 2 --to 30
    """
    from exhume.attacks.heavy_ball import HeavyBall
    from exhume.attacks.running.budget import Limits
    from exhume.errors import UsageError
    from exhume.experiments.run import RunFolder
    from exhume.files import write_text
    from exhume.observing.ridge_view import seen_as_ridge
    from exhume_papers.studies.count import as_csv, certified_samples, estimate, guess_samples

    if request.last < request.first:
        raise UsageError(f"expected --to of at least --from {request.first}, found {request.last}")
    folder, seed = RunFolder.existing(request.run), request.seed
    observation = seen_as_ridge(folder.observation(request.model))
    truth = folder.truth().inputs if folder.has_truth() else None
    method = HeavyBall(step_size=request.step, iterations=request.iterations)
    limits = Limits(request.budget)
    guesses: list[CountEstimate] = []
    numbers, cosine = range(request.first, request.last + 1, request.by), request.cosine
    for guess in guess_samples(observation, numbers, method, seed=seed, limits=limits, cosine=cosine, truth=truth):
        guesses.append(guess)
        tell_guess(guess)
        if guess.copies and not request.go_on:
            break
    counts = estimate(guesses, certified_samples(observation, seed=seed, limits=limits))
    table = request.run / "count.csv"
    write_text(table, as_csv(guesses))
    drawn = _draw(folder, guesses)
    summary = folder.update_summary(counts.summary())
    published = "no duplicate" if counts.by_duplicates is None else f"n = {counts.by_duplicates} by duplicates"
    if counts.by_needed is None:
        say(f"published attack: {published}; none of its candidates explain the weights", json)
    else:
        say(f"published attack: {published}, n = {counts.by_needed} by what explains the weights", json)
    say(f"certificate: n = {counts.certificate} ({counts.outcome})", json)
    say(f"wrote {table}{' and count.png' if drawn else ''}", json)
    if json:
        print_json(summary)


def tell_guess(guess: "CountEstimate") -> None:
    known = "" if guess.error is None else f", rho {guess.error:.2g}"
    say(
        f"told {guess.samples}: loss {guess.found.loss:.1e} after {guess.found.iterations:,} steps "
        f"({guess.found.seconds:.0f} s), {guess.copies} duplicates, {int(guess.idle.sum())} idle{known}",
        as_json=True,
    )


def _draw(folder: "RunFolder", guesses: list["CountEstimate"]) -> bool:
    """True images, the fewest candidates tried, and the most; only where there are images to compare with."""
    from exhume_papers.figures.count_figure import Band, draw_counts
    from exhume_papers.studies.count import arrange

    truth = folder.truth() if folder.has_truth() else None
    if truth is None or truth.image_shape is None:
        return False
    n = len(truth.inputs)
    shown = {guess.samples: guess for guess in guesses}
    chosen = [min(shown), *([n] if n in shown else []), max(shown)]
    bands = [Band(f"true, n = {n}", truth.preparation.to_pixels(truth.inputs, truth.preparation.scale))]
    for samples in dict.fromkeys(chosen):
        arranged = arrange(shown[samples].found.candidates, shown[samples].spare, truth)
        bands.append(Band(f"told {samples}", arranged.pictures, arranged.marked))
    draw_counts(bands, Path(folder.path) / "count.png")
    return True
