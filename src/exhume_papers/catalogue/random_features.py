"""The figures on random features: thresholds (1 to 3, 8, 9 and 14 left) and recovered images (1, 4, 5, 10)."""

import math
from collections.abc import Sequence
from typing import Any

from exhume_papers.catalogue.figure import Figure, Part, Scale
from exhume_papers.catalogue.pictures import PictureFigure
from exhume_papers.catalogue.scales import CIFAR_PIXELS, EXHUME, PUBLISHED, cifar, exhume, grid, sphere
from exhume_papers.catalogue.thresholds import Panel, ThresholdFigure, p_grid, sweeps_of
from exhume_papers.sweeps.sweep import Sweep

SMALL_IMAGES = "8x8 pixels and few samples instead of 32x32 and n=100; the attacks stop early"
RESIDUAL = ("error", "span_residual", "training_loss")
LARGE_V: dict[Scale, dict[str, Any]] = {"here": {"budget": "12m", "memory": "15G"}, "paper": {"memory": "18G"}}
"""Of d = 12,288 even the rows that are used leave little room in 24 GB."""


def _figure_1_left(scale: Scale) -> Sequence[Panel]:
    n, side, seeds = {"quick": (4, 4, 2), "here": (20, 32, 3), "paper": (100, 32, 4)}[scale]
    title, quantities = f"CIFAR-10 {side}x{side}, n={n}", ("error", "training_loss")
    if scale == "here":
        return [Panel(title, _curve_of_images(n, seeds), quantities), _begin_at_full_scale(), _small_images()]
    victim = cifar(n, side, params=grid(scale, n, 3 * side * side))
    attacks = [exhume(scale, n, images=side == 32), PUBLISHED[scale]]
    return [Panel(title, sweeps_of([victim], attacks, seeds), quantities)]


def _curve_of_images(n: int, seeds: int) -> tuple[Sweep, ...]:
    """Fewer points, and fewer iterations where the attack cannot succeed: they take minutes each."""
    d, attack = CIFAR_PIXELS, exhume("here", n, images=True)
    below = p_grid(n, d, below=(0.2, 1, 3), above=(0.1, 0.25, 0.5, 1))
    above = p_grid(n, d, below=(), above=(2, 3, 10))
    hopeless = attack | {"iterations": HOPELESS}
    return sweeps_of([cifar(n, params=below)], [hopeless], seeds) + sweeps_of([cifar(n, params=above)], [attack], seeds)


def _begin_at_full_scale() -> Panel:
    """n = 100 where labels are just fitted; its other end, p = 10dn, is the run of the images."""
    below = sweeps_of([cifar(100, params=[20, 100, 300])], [exhume("here", 100, images=True)], 1)
    return Panel("CIFAR-10 32x32, n=100, where labels are just fitted", below)


def _small_images() -> Panel:
    """Both attacks, at a size where the published one comes to its end."""
    n, side = 10, 8
    victim = cifar(n, side, params=p_grid(n, 3 * side * side, below=(0.2, 1, 3), above=(0.25, 0.5, 1, 2, 3, 10)))
    attacks = [exhume("here", n), PUBLISHED["here"]]
    return Panel(f"CIFAR-10 {side}x{side}, n={n}", sweeps_of([victim], attacks, 1))


def _figure_2(scale: Scale) -> Sequence[Panel]:
    """The same runs."""
    panels = [panel for panel in _figure_1_left(scale) if "just fitted" not in panel.title]
    return [Panel(panel.title, panel.sweeps, ("error", "span_residual")) for panel in panels]


def _figure_1_right(scale: Scale) -> Sequence[Part]:
    n, side = {"quick": (6, 8), "here": (100, 32), "paper": (100, 32)}[scale]
    attack = dict(EXHUME[scale])
    if scale != "quick":  # V is larger than the machine
        attack = {
            "method": "split-newton",
            "budget": "45m" if scale == "here" else "12h",
            "memory": "18G",
        }
    return [Part(f"CIFAR-10 {side}x{side}, n={n}, p=10dn", sweeps_of([cifar(n, side, ratio=10)], [attack], 1))]


def _figure_3(scale: Scale) -> Sequence[Panel]:
    sizes = {
        "quick": [(8, 4, 2, 2), (12, 4, 2, 2), (10, 10, 1, 1)],
        "here": [(30, 20, 10, 3), (100, 20, 10, 1), (100, 100, 3, 0)],
        "paper": [(30, 20, 10, 10), (100, 20, 10, 10), (100, 100, 10, 10)],
    }[scale]
    return [_sphere_panel(scale, d, n, seeds, published) for d, n, seeds, published in sizes]


def _sphere_panel(scale: Scale, d: int, n: int, seeds: int, published_seeds: int) -> Panel:
    """The published attack takes far longer and may have fewer seeds."""
    victim = sphere(d, n)
    sweeps = _sphere_sweeps(scale, victim, d, n, seeds)
    if published_seeds:
        sweeps += sweeps_of([victim | {"params": grid(scale, n, d)}], [PUBLISHED[scale]], published_seeds)
    return Panel(f"sphere, d={d}, n={n}", sweeps)


def _sphere_sweeps(scale: Scale, victim: dict[str, Any], d: int, n: int, seeds: int) -> tuple[Sweep, ...]:
    """exhume's attack on the whole grid; as many samples as dimensions take more iterations, once p is large enough."""
    enough = 3 * d * n if scale == "here" and n >= d else math.inf
    quick = [p for p in grid(scale, n, d) if p < enough]
    slow = [p for p in grid(scale, n, d) if p >= enough]
    sweeps = sweeps_of([victim | {"params": quick}], [exhume(scale, n)], seeds)
    if slow:
        sweeps += sweeps_of([victim | {"params": slow}], [exhume(scale, n) | {"iterations": PATIENT}], seeds)
    return sweeps


def _signs(scale: Scale, activation: str) -> Sequence[Part]:
    n, side = {"quick": (4, 8), "here": (20, 32), "paper": (100, 32)}[scale]
    small = {"quick": (4, 8, 1), "here": (10, 8, 3), "paper": (100, 32, 4)}[scale]
    on_sphere, seeds = {"quick": (6, 2), "here": (20, 8), "paper": (20, 40)}[scale]
    ours = cifar(n, side, ratio=10, activation=activation, seeds=[1])
    theirs = cifar(small[0], small[1], ratio=10, activation=activation)
    synthetic = sphere(on_sphere, on_sphere, ratio=10, activation=activation)
    exhume = dict(EXHUME[scale]) if scale == "quick" else {"method": "split-newton"}
    published = PUBLISHED[scale] | ({} if scale == "quick" else {"iterations": 60_000})
    return [
        Part(f"{activation} {side}x{side}, n={n}, p=10dn", sweeps_of([ours], [exhume], 1)),
        Part(f"{activation} {small[1]}x{small[1]}, n={small[0]}, p=10dn", sweeps_of([theirs], [published], small[2])),
        Part(f"{activation} on the sphere, n = d = {on_sphere}, p=10dn", sweeps_of([synthetic], [published], seeds)),
    ]


def _tiny_imagenet_curve(scale: Scale) -> Sequence[Panel]:
    n, side, seeds = {"quick": (2, 4, 2), "here": (10, 16, 2), "paper": (20, 64, 10)}[scale]
    options = {} if side == 64 else {"side": side}
    d = 3 * side * side
    victim = {"kind": "rf", "data": "tiny-imagenet", "samples": n, "params": grid(scale, n, d), **options}
    return [Panel(f"Tiny-ImageNet {side}x{side}, n={n}", sweeps_of([victim], [exhume(scale, n)], seeds), RESIDUAL)]


def _tiny_imagenet_pictures(scale: Scale) -> Sequence[Part]:
    n, side, ratio = {"quick": (2, 8, 10), "here": (10, 64, 3), "paper": (20, 64, 10)}[scale]
    options = {} if side == 64 else {"side": side}
    attack = dict(EXHUME[scale]) if scale == "quick" else {"method": "split-newton", "samples": n, **LARGE_V[scale]}
    victim = {"kind": "rf", "data": "tiny-imagenet", "samples": n, "ratio": ratio, **options}
    return [Part(f"Tiny-ImageNet {side}x{side}, n={n}, p={ratio}dn", sweeps_of([victim], [attack], 1))]


def _figure_8_left(scale: Scale) -> Sequence[Panel]:
    d, n, seeds, steps = {
        "quick": (8, 4, 2, 10_000),
        "here": (100, 100, 3, 1_000_000),
        "paper": (100, 100, 10, 1_000_000),
    }[scale]
    victim = sphere(d, n, labels="sign", fit="logistic", step_size=1e-3, steps=steps)
    sweeps = _sphere_sweeps(scale, victim, d, n, seeds)
    if scale != "here":
        sweeps += sweeps_of([victim | {"params": grid(scale, n, d)}], [PUBLISHED[scale]], seeds)
    return [Panel(f"logistic loss, d={d}, n={n}", sweeps)]


def _figure_9_left(scale: Scale) -> Sequence[Panel]:
    d, n, seeds = {"quick": (12, 4, 2), "here": (100, 20, 10), "paper": (100, 20, 10)}[scale]
    victim = sphere(d, n, params=grid(scale, n, d))
    attacks = [exhume(scale, n)] + ([PUBLISHED[scale]] if scale == "paper" else [])
    return [Panel(f"random features, d={d}, n={n}", sweeps_of([victim], attacks, seeds), RESIDUAL)]


FEWER = "the attack stops after 600 iterations, also where it would go on"
PATIENT = 2_000
HOPELESS = 150
FEWER_OR_PATIENT = f"{FEWER}, with n = d after {PATIENT:,} from p = 3dn on"
FIGURES: tuple[Figure, ...] = (
    ThresholdFigure(
        "fig1-curve",
        "two thresholds: p = n fits the labels, p ~ dn gives the data away",
        "a drop of the error at p of order dn, to 0 at p = 10dn (n=100, 4 seeds; the text gives no numbers)",
        _figure_1_left,
        {
            "quick": "4x4 pixels, n=4, 2 seeds; the attacks stop early",
            "here": "n=20 and 3 seeds instead of n=100 and 4, n=100 up to p = 3n (10dn: fig1-images); exhume's "
            f"attack, with n=20 at most {HOPELESS} iterations below p = 2dn and 400 from there on; both "
            "attacks at 8x8, n=10",
        },
    ),
    PictureFigure(
        "fig1-images",
        "recovered images at p = 10dn (figure 1, right)",
        "all 100 images recovered, visually the same",
        _figure_1_right,
        {"quick": SMALL_IMAGES, "here": "exhume's attack, not told n, 45 minutes"},
    ),
    ThresholdFigure(
        "fig2",
        "the span residual falls with the error at p ~ dn",
        "the residual is large up to p ~ dn and drops sharply after it",
        _figure_2,
        {"quick": "as fig1-curve", "here": "as fig1-curve"},
    ),
    ThresholdFigure(
        "fig3",
        "the same two thresholds on synthetic data",
        "training loss 0 from p = n, error 0 only for p well above dn (10 seeds)",
        _figure_3,
        {
            "quick": "d and n of 4 to 12, 1 or 2 seeds; the attacks stop early",
            "here": "3 seeds for (100, 100); the published attack with 3 seeds for (30, 20) and 1 for (100, 20), "
            f"20,000 steps; {FEWER_OR_PATIENT}",
        },
    ),
    PictureFigure(
        "fig4",
        "with ReLU the published attack may find negatives",
        "some of the 100 recovered images are negatives",
        lambda scale: _signs(scale, "relu"),
        {
            "quick": SMALL_IMAGES,
            "here": "n=20; the published attack at 8x8, n=10, 3 seeds, and on the sphere, 8 seeds; exhume repairs the "
            "signs, so it should have none wrong",
        },
    ),
    PictureFigure(
        "fig5",
        "images of higher resolution (Tiny-ImageNet)",
        "all 20 images recovered at p = 10dn",
        _tiny_imagenet_pictures,
        {
            "quick": "8x8 pixels, n=2",
            "here": "n=10 at p = 3dn, told n, 12 minutes, of the rows of V as many as fit into 15 GB",
        },
    ),
    ThresholdFigure(
        "fig8-logistic",
        "logistic loss: the same threshold (figure 8, left)",
        "error 0 only for p well above dn (10 seeds)",
        _figure_8_left,
        {"quick": "d=8, n=4, 10,000 steps of training", "here": f"3 seeds; exhume's attack; {FEWER_OR_PATIENT}"},
    ),
    ThresholdFigure(
        "fig9-features",
        "error, training loss and span residual together (figure 9, left)",
        "the residual falls with the error at p ~ dn (10 seeds)",
        _figure_9_left,
        {"quick": "d=12, n=4, 2 seeds", "here": f"exhume's attack; {FEWER}"},
    ),
    PictureFigure(
        "fig10",
        "with ReLU + tanh there are no negatives",
        "no negative among the 100 recovered images, with the seed of figure 4",
        lambda scale: _signs(scale, "relu+tanh"),
        {"quick": SMALL_IMAGES, "here": "n=20; the published attack at 8x8, n=10, 3 seeds, and on the sphere, 8 seeds"},
    ),
    ThresholdFigure(
        "fig14",
        "the threshold on Tiny-ImageNet (figure 14, left; its images are fig5)",
        "error and residual fall to 0 above p ~ dn (n=20, 10 seeds)",
        _tiny_imagenet_curve,
        {"quick": "4x4 pixels, n=2", "here": f"16x16 pixels, n=10, 2 seeds; {FEWER}"},
    ),
)
