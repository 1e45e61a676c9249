"""Is an outlier remembered first, below the threshold? The open question of the paper's section 6, in two readings.

One sample of n is an outlier by its norm (heavy-tailed data, labels Y = Xg + noise as for the others), or by its label.
"""

import statistics
from dataclasses import replace
from typing import Any, Literal

from exhume import seeds
from exhume.attacks.running.loop import run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.metrics.matching import match, to_norm
from exhume_papers.catalogue.figure import Scale, shown
from exhume_papers.catalogue.theory import Check
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

TIMES_LARGER = 5.0
Kind = Literal["norm", "label"]


def outlier_first(scale: Scale) -> Check:
    d, n, trials, iterations = {
        "quick": (8, 4, 2, 60),
        "here": (30, 10, 5, 300),
        "paper": (100, 20, 10, 1_000),
    }[scale]
    rows: list[dict[str, Any]] = []
    for kind in ("norm", "label"):
        for ratio in (0.25, 0.5, 0.75, 1.0, 2.0):
            pairs = [_distances(kind, d, n, ratio, seed, iterations) for seed in range(trials)]
            outlier = statistics.fmean(pair[0] for pair in pairs)
            others = statistics.fmean(pair[1] for pair in pairs)
            rows.append({"outlier_by": kind, "d": d, "n": n, "ratio": ratio, "outlier": outlier, "others": others})
    lines = []
    for kind in ("norm", "label"):
        below = [row for row in rows if row["outlier_by"] == kind and row["ratio"] < 1]
        outlier = statistics.fmean(row["outlier"] for row in below)
        others = statistics.fmean(row["others"] for row in below)
        lines.append(f"by its {kind}: the outlier at {shown(outlier)}, the others at {shown(others)}")
    finding = (
        f"distances (1 is chance or worse) below p = dn, an outlier {TIMES_LARGER:g} times larger: {'; '.join(lines)}"
    )
    return Check(
        "outlier-first", "an outlier may be remembered before the threshold (asked, not claimed)", rows, finding
    )


def _distances(kind: Kind, d: int, n: int, ratio: float, seed: int, iterations: int) -> tuple[float, float]:
    """How far the outlier is from its candidate, and how far the others are, on directions, in units of √d."""
    data = _with_outlier(load(DataConfig(name="sphere", samples=n, dim=d, seed=seeds.derive(seed, "data"))), kind)
    config = RandomFeaturesConfig(params=max(1, round(ratio * n * d)), seed=seed)
    victim = train_random_features(config, data, draw_rows(config, d))
    found = run_attack(victim.observation.knowing(n), SplitNewton(iterations=iterations), seed=seed).reconstruction
    norm = d**0.5
    distance = match(to_norm(data.inputs, norm), to_norm(found.candidates, norm), sign_free=True).distance
    return min(1.0, distance[0].item()), min(1.0, distance[1:].mean().item())


def _with_outlier(data: Dataset, kind: Kind) -> Dataset:
    """The first sample becomes the outlier. A label that is linear in the sample grows with its norm."""
    inputs, labels = data.inputs.clone(), data.labels.clone()
    labels[0] *= TIMES_LARGER
    if kind == "norm":
        inputs[0] *= TIMES_LARGER
    return replace(data, inputs=inputs, labels=labels)
