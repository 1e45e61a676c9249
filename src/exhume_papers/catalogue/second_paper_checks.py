"""Checks of the second paper's theory: the width bound, and the angles of estimated subspaces."""

import itertools
import statistics
from typing import Any

import torch

from exhume_papers.catalogue.figure import Scale, shown
from exhume_papers.catalogue.theorems import rate_refuted
from exhume_papers.catalogue.theory import Check, slope
from exhume_papers.figures.law_figures import LawPanel
from exhume_papers.studies.subspace_angles import MomentAngle, RoundedLayer
from exhume_papers.studies.two_on_circle import CircleTrial, separation, width_bound

RECOVERING = 0.05


def width_at_risk(scale: Scale) -> Check:
    """Two samples on a circle, every pair of candidates of a grid, all coefficients: does the bound ever fail?"""
    trials, largest = {"quick": (20, 2_000), "here": (100, None), "paper": (1_000, None)}[scale]
    eta, bound = separation(), width_bound(RECOVERING)
    rows = []
    for width in (5, 8, 10, 15, 20, 30, 50, 100, 1_000, largest or bound):
        failures = sum(CircleTrial(width, seed).run() < eta / 4 for seed in range(trials))
        rows.append({"width": width, "trials": trials, "failures": failures})
    last = rows[-1]
    enough = next(row["width"] for row in rows if not any(later["failures"] for later in rows[rows.index(row) :]))
    finding = (
        f"bound {bound:,} for two samples in two dimensions (eta {shown(eta)}, delta {RECOVERING}): "
        f"{last['failures']} of {last['trials']} trials failed at width {last['width']:,}"
    )
    if not last["failures"]:
        finding += f", so a rate above {shown(rate_refuted(trials))} is refuted at 95 %; none failed from {enough:,} on"
    return Check("width-at-risk", "at the bound's width recovery fails with probability delta at most", rows, finding)


def subspace_angles(scale: Scale) -> Check:
    """Sines of the largest angle to the data's span, against the lemma's bound and against its rate."""
    dims, widths, ratios, trials = {
        "quick": ((20,), (50, 200), (10, 100), 1),
        "here": ((50, 200), (50, 200, 800), (10, 30, 100, 300, 1000), 5),
        "paper": ((50, 200, 800), (50, 200, 800, 3200), (10, 30, 100, 300, 1000), 10),
    }[scale]
    formats = (torch.float16, torch.bfloat16)
    rows: list[dict[str, Any]] = []
    for d, width, dtype in itertools.product(dims, widths, formats):
        found = [RoundedLayer(5, d, 10, width, dtype, seed).run() for seed in range(trials)]
        rows.append(
            {
                "from": f"first layer in {str(dtype).removeprefix('torch.')}",
                "d": d,
                "width": width,
                "sine": statistics.fmean(one.angle for one in found),
                "bound": statistics.fmean(one.bound for one in found),
                "most": max(one.angle / one.bound for one in found),
            }
        )
    points = []
    for ratio in ratios:
        sines = [MomentAngle(40, 3, ratio * 120, seed).run() for seed in range(trials)]
        points.append((float(ratio), statistics.fmean(sines)))
        rows.append({"from": "moments", "d": 40, "width": ratio * 120, "sine": points[-1][1], "bound": "", "most": ""})
    layers = [row for row in rows if row["from"] != "moments"]
    halves, brains = ([row["sine"] for row in layers if name in row["from"]] for name in ("in float16", "bfloat16"))
    steps = statistics.fmean(coarse / fine for coarse, fine in zip(brains, halves, strict=True))
    most = max(row["most"] for row in layers)
    finding = (
        f"sines of the largest angle are up to {shown(most)} of the lemma's bound over {len(layers) * trials} rounded "
        f"layers; bfloat16, whose rounding is 8 times that of float16, has {steps:.1f} times its sines; the span of "
        f"moments comes closer like p^{slope(points):.2f}"
    )
    panel = LawPanel("span of moments, d = 40", "p / (dn)", "sine of the largest angle", {"n=3": points}, slope=-0.5)
    return Check("subspace-angles", "the estimated span converges to the data's, with a rate", rows, finding, panel)
