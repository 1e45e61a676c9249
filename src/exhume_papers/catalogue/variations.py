"""The figures that vary one thing: the step (11), the number of candidates (12), ridge (15), pruning (16)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exhume.attacks.heavy_ball import published_step
from exhume_papers.catalogue.copies import tell_apart
from exhume_papers.catalogue.figure import Figure, Part, PartResults, Scale, attack_name, shown
from exhume_papers.catalogue.pictures import true_pixels
from exhume_papers.catalogue.scales import EXHUME, PUBLISHED, cifar, exhume, grid, sphere
from exhume_papers.catalogue.thresholds import Panel, ThresholdFigure, p_grid, sweeps_of
from exhume_papers.figures.count_figure import Band, draw_counts
from exhume_papers.studies.count import arrange


def _figure_11(scale: Scale) -> Sequence[Panel]:
    n, side, seeds, factors, ratios = {
        "quick": (2, 4, 1, (0.25, 1, 4), (0.5, 2, 10)),
        "here": (10, 8, 2, (0.25, 0.5, 1, 2, 4), (0.5, 1, 2, 4)),
        "paper": (20, 32, 10, (0.25, 0.5, 1, 2, 4), (0.1, 0.5, 1, 2, 4, 10)),
    }[scale]
    d = 3 * side * side
    steps = [round(factor * published_step(d), 6) for factor in factors]
    victim = cifar(n, side, params=p_grid(n, d, (), ratios))
    sweeps = sweeps_of([victim], [PUBLISHED[scale] | {"step": steps}, exhume(scale, n)], seeds)
    title = f"CIFAR-10 {side}x{side}, n={n}"
    return [
        Panel(title, sweeps, (quantity,), "attack.step", "step", log_y=quantity != "error")
        for quantity in ("error", "iterations", "loss")
    ]


def _figure_15(scale: Scale) -> Sequence[Panel]:
    sizes = {"quick": [(8, 4, 2)], "here": [(30, 20, 10)], "paper": [(30, 20, 10), (100, 100, 10)]}[scale]
    penalties = [0.01, 10.0] if scale == "quick" else [0.01, 1.0, 100.0]
    panels = []
    for d, n, seeds in sizes:
        plain = sphere(d, n, params=grid(scale, n, d))
        sweeps = sweeps_of([plain, plain | {"ridge": penalties}], [exhume(scale, n)], seeds)
        panels.append(Panel(f"ridge, d={d}, n={n}", sweeps, varied="train.ridge", varied_name="lambda"))
    return panels


def _figure_16(scale: Scale) -> Sequence[Panel]:
    sizes = {"quick": [(8, 4, 2)], "here": [(30, 20, 10)], "paper": [(30, 20, 10), (100, 100, 10)]}[scale]
    pruned = ["obs50"] if scale == "quick" else ["obs25", "obs50", "obs75"]
    panels = []
    for d, n, seeds in sizes:
        unpruned = [p for p in grid(scale, n, d) if p > n]  # of fewer weights none is to spare
        plain = sphere(d, n, params=unpruned)
        sweeps = sweeps_of([plain, plain | {"defence": pruned}], [exhume(scale, n)], seeds)
        title = f"p before pruning, d={d}, n={n}"
        panels.append(Panel(title, sweeps, varied="train.defence", varied_name="pruned", against="train.params"))
    return panels


@dataclass(frozen=True)
class CountFigure(Figure):
    """Figure 12: the number of candidates differs from the number of samples."""

    name: str = "fig12"
    title: str = "n^ differs from n: fewer rows blend images, more rows duplicate them"
    published: str = "n^ = n - 10 gives blends; n^ = n + 10 gives all 50 images and 10 duplicates"
    differs: Mapping[Scale, str] = field(
        default_factory=lambda: {
            "quick": "8x8 pixels, n=4, n^ = n - 1, n, n + 1; the attacks stop early",
            "here": "n=20 for exhume's attack, and 8x8 pixels, n=10 for the published one",
        }
    )

    def parts(self, scale: Scale) -> Sequence[Part]:
        ours, theirs, off = {
            "quick": ((4, 8), (4, 8), 1),
            "here": ((20, 32), (10, 8), 2),
            "paper": ((50, 32), (50, 32), 10),
        }[scale]
        counts = ["auto"] if scale == "quick" else [ours[0] - off, "auto", ours[0] + off]
        return [
            Part(
                f"CIFAR-10 {side}x{side}, n={n}, p=10dn",
                sweeps_of([cifar(n, side, ratio=10)], [attack | {"samples": told}], 1),
            )
            for (n, side), attack, told in (
                (ours, EXHUME[scale], counts),
                (theirs, PUBLISHED[scale], [theirs[0] - off, theirs[0], theirs[0] + off]),
            )
        ]

    def draw(self, results: Sequence[PartResults], folder: Path) -> list[Path]:
        """For each part the true images, and all candidates of each n^ in their order; copies are framed."""
        drawn = []
        for number, result in enumerate(results):
            truth = result.folder(result.rows[0]).truth()
            bands = [Band(f"true, n = {len(truth.inputs)}", true_pixels(truth))]
            for row in result.rows:
                found = result.folder(row).reconstruction()
                kinds = tell_apart(truth.inputs, found.candidates, found.coefficients)
                shown = arrange(found.candidates, kinds.spare, truth)
                bands.append(Band(f"{row['method']}\nn^ = {row['attack.samples']}", shown.pictures, shown.marked))
            drawn.append(folder / f"{self.name}{'' if number == 0 else f'-{number + 1}'}.png")
            draw_counts(bands, drawn[-1])
        return drawn

    def findings(self, results: Sequence[PartResults]) -> list[str]:
        return [_count_sentence(result, row) for result in results for row in result.rows]


def _count_sentence(result: PartResults, row: Mapping[str, Any]) -> str:
    run = result.folder(row)
    found = run.reconstruction()
    kinds = tell_apart(run.truth().inputs, found.candidates, found.coefficients)
    return (
        f"{result.part.title}, {attack_name(row)} with n^ = {row['attack.samples']}: "
        f"{row['samples_found']} candidates, "
        f"{kinds.samples} samples found, {int(kinds.spare.sum())} duplicates, {kinds.blends} blends, "
        f"{int(kinds.idle.sum())} idle, "
        f"rho {shown(float(row['error']))}"
    )


FIGURES: tuple[Figure, ...] = (
    ThresholdFigure(
        "fig11",
        "the step of the published attack: error, iterations, final loss",
        "eta*/4 to eta* converge within 60,000 steps and recover above dn; 2 eta* and 4 eta* oscillate",
        _figure_11,
        {
            "quick": "4x4 pixels, n=2, 1,000 steps",
            "here": "8x8 pixels, n=10, 20,000 steps, 2 seeds; exhume's attack beside it as 'step none'",
        },
    ),
    CountFigure(),
    ThresholdFigure(
        "fig15",
        "a ridge penalty does not move the threshold",
        "even very large penalties leave the threshold where it is (10 seeds)",
        _figure_15,
        {"quick": "d=8, n=4, 2 seeds", "here": "(30, 20), penalties 0.01, 1, 100; exhume's attack"},
    ),
    ThresholdFigure(
        "fig16",
        "pruning with Optimal Brain Surgeon raises the p that is needed",
        "the more is pruned, the more parameters it takes (10 seeds)",
        _figure_16,
        {"quick": "d=8, n=4, 2 seeds", "here": "(30, 20), 25, 50 and 75 % pruned; exhume's attack"},
    ),
)
