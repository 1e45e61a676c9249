"""The figures on trained networks: two-layer (6, 7, 8 right, 9, 17), ResNet (6, 9), Vision Transformer (13)."""

from collections.abc import Sequence
from typing import Any

from exhume_papers.catalogue.figure import Figure, Part, Scale
from exhume_papers.catalogue.pictures import PictureFigure
from exhume_papers.catalogue.scales import PUBLISHED
from exhume_papers.catalogue.thresholds import Panel, ThresholdFigure, sweeps_of

TEN = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"
FIVE = "airplane,automobile,bird,cat,deer"
SPLIT = {"standardise": "cifar10-split"}
RESIDUAL = ("error", "span_residual", "training_loss")
RATIOS: dict[Scale, list[float]] = {
    "quick": [0.25, 1, 4],
    "here": [0.1, 0.25, 0.5, 1, 2, 4],
    "paper": [0.01, 0.03, 0.1, 0.25, 0.5, 1, 2, 4],
}
ATTACK: dict[Scale, dict[str, Any]] = {
    "quick": {"iterations": 150},
    "here": {"iterations": 1_500},
    "paper": {},
}


def _attack(scale: Scale, n: int) -> dict[str, Any]:
    """With the knowledge that the published attack needs, n."""
    return ATTACK[scale] | {"samples": n}


def _images(n: int, side: int) -> dict[str, Any]:
    smaller = {} if side == 32 else {"side": side}
    return {"data": "cifar10", "samples": n, **smaller}


def _two_layer(n: int, side: int, **options: Any) -> dict[str, Any]:
    return {"kind": "two-layer", "classes": TEN, **_images(n, side), **options}


def _training(scale: Scale, loss: str) -> dict[str, Any]:
    """The published step where everything is as published; otherwise one from the measured curvature."""
    if loss == "square":
        return {}
    return {"loss": loss, "step_size": 1e-3} if scale == "paper" else {"loss": loss}


def _small(title: str, victim: dict[str, Any], n: int, quantities: Sequence[str] = RESIDUAL) -> list[Panel]:
    """Both attacks on images of 8 x 8 pixels, where the published one comes to its end."""
    attacks = [_attack("here", n), PUBLISHED["here"]]
    return [Panel(f"{title} 8x8, n={n}", sweeps_of([victim | {"ratio": [0.25, 1, 4]}], attacks, 1), quantities)]


def _two_layer_panels(scale: Scale, loss: str) -> list[Panel]:
    """With both attacks beside it."""
    more = _small("two-layer", _two_layer(10, 8), 10) if scale == "here" and loss == "square" else []
    return [_two_layer_panel(scale, loss), *more]


def _two_layer_panel(scale: Scale, loss: str) -> Panel:
    side, seeds = {"quick": (4, 1), "here": (32, 3), "paper": (32, 10)}[scale]
    training = _training(scale, loss)
    victim = _two_layer(10, side, ratio=RATIOS[scale], **training)
    return Panel(f"two-layer, {loss}, {side}x{side}, n=10", sweeps_of([victim], [_attack(scale, 10)], seeds), RESIDUAL)


def _resnet_panels(scale: Scale) -> Sequence[Panel]:
    n, side, seeds = {"quick": (2, 8, 1), "here": (5, 16, 3), "paper": (10, 32, 10)}[scale]
    victim = {"kind": "resnet", **_images(n, side), **SPLIT, "until": 1e-7, "ratio": RATIOS[scale]}
    panels = [Panel(f"ResNet {side}x{side}, n={n}", sweeps_of([victim], [_attack(scale, n)], seeds), RESIDUAL)]
    if scale == "here":  # one point at the resolution of the paper
        point = {"kind": "resnet", **_images(2, 32), **SPLIT, "until": 1e-7, "ratio": [4]}
        panels.append(Panel("ResNet 32x32, n=2", sweeps_of([point], [_attack(scale, 2)], 1), RESIDUAL))
        panels += _small("ResNet", {"kind": "resnet", **_images(3, 8), **SPLIT, "until": 1e-7}, 3)
    return panels


def _vit_panels(scale: Scale) -> list[Panel]:
    """Besides the small one, at "here", one of the paper's kind: four patches, as 16 x 16 of 32 x 32 pixels are, a
    class token that the head reads, and more blocks. Its embedding is p_L / 5, so its images are smaller."""
    if scale != "here":
        return [_vit_panel(scale)]
    size = {"kind": "vit", **_images(5, 8), **SPLIT, "classes": FIVE, "patch": 4, "until": 1e-7}
    akin = size | {"class_token": True, "depth": 4, "heads": 4, "ratio": [0.25, 1, 2, 4]}
    panel = Panel("ViT with a class token, 8x8, n=5", sweeps_of([akin], [_attack(scale, 5)], 1), RESIDUAL)
    return [_vit_panel(scale), panel, *_small("Vision Transformer", size, 5)]


def _vit_panel(scale: Scale) -> Panel:
    side, patch, seeds = {"quick": (8, 4, 1), "here": (16, 4, 3), "paper": (32, 4, 10)}[scale]
    size = {"kind": "vit", **_images(5, side), **SPLIT, "classes": FIVE, "patch": patch, "until": 1e-7}
    victim = size | {"ratio": RATIOS[scale]}
    return Panel(f"Vision Transformer {side}x{side}, n=5", sweeps_of([victim], [_attack(scale, 5)], seeds), RESIDUAL)


def _pictures_of(panels: Sequence[Panel]) -> Sequence[Part]:
    """One run of each curve, at p_L = 4dn."""
    parts = []
    for panel in panels:
        (sweep,) = panel.sweeps
        victims = [dict(victim) | {"ratio": [4]} for victim in sweep.victims]
        parts.append(Part(f"{panel.title}, p_L=4dn", sweeps_of(victims, sweep.attacks[:1], 1)))
    return parts


def _two_layer_pictures(scale: Scale, loss: str) -> Sequence[Part]:
    n, side = {"quick": (10, 8), "here": (100, 32), "paper": (100, 32)}[scale]
    training = _training(scale, loss)
    attack = dict(ATTACK[scale]) if scale == "quick" else {"budget": "60m", "memory": "10G", "samples": n}
    victim = _two_layer(n, side, ratio=4, **training)
    return [Part(f"two-layer, {loss}, {side}x{side}, n={n}, p_L=4dn", sweeps_of([victim], [attack], 1))]


def _panels_9(scale: Scale) -> Sequence[Panel]:
    return [_two_layer_panel(scale, "square"), *_resnet_panels(scale)]


STEP = (
    "the step is 1 / the largest curvature instead of 1e-5, which ends nearly at the same point far sooner (theory: "
    "same-point)"
)
VIT = "patches of 4, 2 blocks, head on all tokens"
LIMIT = "1,500 iterations per attack"
FIGURES: tuple[Figure, ...] = (
    ThresholdFigure(
        "fig6-two-layer",
        "two-layer networks: the threshold at p_L = k h ~ dn (figure 6, left)",
        "error falls to 0 above p_L ~ dn (n=10, 10 seeds)",
        lambda scale: _two_layer_panels(scale, "square"),
        {"quick": "4x4 pixels, 1 seed", "here": f"3 seeds, both attacks at 8x8; {STEP}; {LIMIT}", "paper": STEP},
    ),
    ThresholdFigure(
        "fig6-resnet",
        "residual networks: the same threshold (figure 6, right)",
        "error falls to 0 above p_L ~ dn (32x32, n=10, 10 seeds)",
        _resnet_panels,
        {
            "quick": "8x8 pixels, n=2, 1 seed",
            "here": f"16x16 pixels, n=5, 3 seeds, and 32x32 with n=2, both attacks at 8x8; {STEP}; {LIMIT}",
            "paper": STEP,
        },
    ),
    PictureFigure(
        "fig6-resnet-images",
        "images recovered from residual networks",
        "no such figure",
        lambda scale: _pictures_of(_resnet_panels(scale)),
        {"quick": "8x8 pixels, n=2", "here": "runs of fig6-resnet", "paper": STEP},
    ),
    PictureFigure(
        "fig7",
        "recovered images of a two-layer network, ten per class",
        "all 100 images recovered at p_L = 4dn",
        lambda scale: _two_layer_pictures(scale, "square"),
        {"quick": "8x8 pixels, n=10", "here": f"one hour; {STEP}", "paper": f"one hour; {STEP}"},
    ),
    ThresholdFigure(
        "fig8-cross-entropy",
        "cross-entropy: the same threshold, with the span residual (figure 8, right)",
        "error and residual fall above p_L ~ dn (n=10, 10 seeds)",
        lambda scale: [_two_layer_panel(scale, "cross-entropy")],
        {"quick": "4x4 pixels, 1 seed", "here": f"3 seeds; {STEP}; to a loss of 1e-3; {LIMIT}"},
    ),
    ThresholdFigure(
        "fig9-networks",
        "error, training loss and span residual of networks (figure 9, middle and right)",
        "the residual falls with the error at p_L ~ dn (10 seeds)",
        _panels_9,
        {"quick": "the runs of fig6", "here": "the runs of fig6", "paper": "the runs of fig6"},
    ),
    ThresholdFigure(
        "fig13-curve",
        "Vision Transformers: the threshold (figure 13, left)",
        "error falls above p_L ~ dn (n=5, 10 seeds)",
        _vit_panels,
        {
            "quick": "8x8 pixels, 1 seed",
            "here": f"16x16 pixels, {VIT}, 3 seeds; 8x8 pixels, 4 patches, class token, 4 blocks; both attacks at 8x8; "
            f"{STEP}; {LIMIT}",
            "paper": f"{VIT}; {STEP}",
        },
    ),
    PictureFigure(
        "fig13-images",
        "images recovered from a Vision Transformer (figure 13, right)",
        "all 5 images recovered at p_L = 4dn",
        lambda scale: _pictures_of(_vit_panels(scale)[:2]),
        {
            "quick": "8x8 pixels",
            "here": f"16x16 pixels, and 8x8 with a class token; {STEP}; {LIMIT}",
            "paper": f"{VIT}; {STEP}",
        },
    ),
    PictureFigure(
        "fig17",
        "recovered images, cross-entropy",
        "all 100 images recovered at p_L = 4dn",
        lambda scale: _two_layer_pictures(scale, "cross-entropy"),
        {"quick": "8x8 pixels, n=10", "here": "one hour", "paper": "one hour"},
    ),
)
