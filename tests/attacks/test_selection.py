import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.loop import Limits, run_attack
from exhume.attacks.retraction import to_norm
from exhume.attacks.ridge.levenberg import Levenberg
from exhume.attacks.ridge.proposals import random_rows
from exhume.attacks.ridge.pruning import removal_costs
from exhume.attacks.ridge.selection import PROMISING, worth_keeping
from exhume.attacks.ridge.span import SpanLoss
from exhume.attacks.ridge.split_newton import SELECT, SplitNewton
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold
from exhume.metrics.errors import signed_error
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Outcome

BULK = torch.linspace(0.8, 1.2, 20, dtype=torch.float64)


def kept_of(costs: Tensor) -> list[int]:
    return worth_keeping(costs).nonzero()[:, 0].tolist()


def test_what_stands_out_is_kept_and_the_best_of_the_rest() -> None:
    kept = kept_of(torch.cat([BULK, torch.tensor([4.0, 5.0])]))
    assert kept == [16, 17, 18, 19, 20, 21]
    assert len(kept_of(BULK)) == PROMISING * len(BULK)


def test_samples_stand_out_of_ghosts_also_where_they_are_the_larger_half() -> None:
    ghosts = torch.linspace(0.01, 0.02, 8, dtype=torch.float64)
    kept = kept_of(torch.cat([ghosts, BULK]))
    assert kept[-20:] == list(range(8, 28))
    assert len(kept) == 22


def test_something_is_kept_and_something_replaced_where_all_are_alike() -> None:
    assert kept_of(torch.ones(12)) == list(range(12)), "equal ones cannot be told apart"
    assert 0 < len(kept_of(torch.arange(1.0, 13.0))) < 12


def alike(seed: int) -> tuple[RidgeFeatures, Tensor, Tensor]:
    """As many samples as dimensions, with coefficients ±1: no direction of the weights stands out."""
    stream = torch.Generator().manual_seed(seed)
    samples = to_norm(torch.randn(24, 24, generator=stream), 24**0.5)
    signs = torch.where(torch.rand(1, 24, generator=stream) < 0.5, -1.0, 1.0)
    features = RidgeFeatures(hold(DrawnRows(1, 4 * 24 * 24, 24)), activation("relu"))
    return features, signs @ features(samples), samples


def test_samples_are_told_from_blends_by_what_they_explain() -> None:
    features, weights, samples = alike(seed=0)
    loss = SpanLoss(features, weights).part(features.p, affine=True)
    start = random_rows(36, 24, 24**0.5, torch.Generator().manual_seed(0), weights)
    *_, fit = Levenberg().refine(loss, loss.fit(start), 24**0.5, iterations=30)
    nearest = ((fit.candidates @ samples.T).abs() / 24).amax(dim=1)
    assert float(nearest.median()) < 0.8, "a bad minimum: most of them are between samples"
    costs = removal_costs(fit, loss)
    assert costs[nearest > 0.9].mean() > 1.5 * costs[nearest < 0.8].mean()
    assert worth_keeping(costs)[nearest > 0.95].all()


@pytest.mark.parametrize("seed", [0, 1])
def test_samples_of_equal_coefficients_are_found_though_none_stands_out(seed: int) -> None:
    features, weights, samples = alike(seed)
    phases: set[float] = set()
    found = run_attack(
        Observation(features, weights, Knowledge()),
        SplitNewton(),
        limits=Limits(seconds=200),
        watch=lambda progress: phases.add(progress.step.notes["phase"]),
    ).reconstruction
    assert SELECT in phases
    assert found.outcome is Outcome.RECOVERED
    assert len(found.candidates) == 24
    assert signed_error(samples, found.candidates) < 1e-5
    assert found.iterations < 600, "adding candidates one by one takes about a thousand"
