"""Does gradient descent with a large stable step end where the paper's step of 1e-5 ends?

The figures on networks train with a step of 1 / the largest curvature, because 1e-5 takes up to a million steps. For a
linear model both end at the same point. A network's features move, so the points differ; here by how much, relative to
the change of the head that is attacked, and what it does to the floor of the attack's loss.
"""

import statistics

from exhume import seeds
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume_papers.catalogue.figure import Scale, shown
from exhume_papers.catalogue.theory import Check
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

SLOWER = (10, 100)
REACHED = 1e-7


def same_point(scale: Scale) -> Check:
    d, n, trials = {"quick": (20, 4, 1), "here": (100, 10, 3), "paper": (100, 10, 10)}[scale]
    rows = []
    for slower in SLOWER:
        apart = [_apart(d, n, slower, seed) for seed in range(trials)]
        rows.append({"d": d, "n": n, "width": 4 * d * n, "slower": slower, "apart": statistics.fmean(apart)})
    told = ", ".join(f"{shown(row['apart'])} for a step {row['slower']} times smaller" for row in rows)
    finding = (
        f"two-layer networks, p_L = 4dn, d={d}, n={n}, to a loss of {REACHED:g}: the change of the head that is "
        f"attacked differs by a share of {told}"
    )
    return Check("same-point", "none: the paper trains with 1e-5", rows, finding)


def _apart(d: int, n: int, slower: int, seed: int) -> float:
    """‖difference of the two changes of the head‖ / ‖change‖."""
    data = load(DataConfig(name="sphere", samples=n, dim=d, seed=seeds.derive(seed, "data")))
    config = TwoLayerConfig(width=4 * d * n, seed=seed, recipe=DescentRecipe(until=REACHED))
    quick = train_two_layer(config, data)
    recipe = DescentRecipe(until=REACHED, step_size=quick.descent.step_size / slower, steps=10_000_000)
    slow = train_two_layer(config.model_copy(update={"recipe": recipe}), data)
    change = quick.head - quick.initial_head
    return float((slow.head - quick.head).norm() / change.norm())
