import os
import signal
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.projection import removal_costs
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.running.loop import Limits, Progress, run_attack
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.proposals import random_rows
from exhume.attacks.single_layer.selection import PROMISING, alike, worth_keeping
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.split_newton import SELECT, SplitNewton
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold
from exhume.metrics.errors import signed_error
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Outcome

BULK = torch.linspace(0.8, 1.2, 20, dtype=torch.float64)


@pytest.fixture(autouse=True)
def shapes_unchecked() -> Iterator[None]:
    """Checking every call makes an attack six times slower; tests of the parts check them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


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
    for costs in (torch.ones(12), torch.zeros(12), torch.arange(1.0, 13.0)):
        assert int(worth_keeping(costs).sum()) == 3, "a fifth, rounded up"


def test_candidates_are_alike_unless_some_explain_much_more() -> None:
    assert alike(BULK)
    assert alike(torch.cat([BULK, torch.tensor([9.0])])), "one of many"
    assert not alike(torch.cat([BULK, torch.tensor([4.0, 5.0, 6.0])]))


def victim(seed: int, d: int = 24) -> tuple[RidgeFeatures, Tensor, Tensor]:
    """As many samples as dimensions, with coefficients ±1: no direction of the weights stands out."""
    stream = torch.Generator().manual_seed(seed)
    samples = to_norm(torch.randn(d, d, generator=stream), d**0.5)
    signs = torch.where(torch.rand(1, d, generator=stream) < 0.5, -1.0, 1.0)
    features = RidgeFeatures(hold(DrawnRows(1, 4 * d * d, d)), activation("relu"))
    return features, signs @ features(samples), samples


def test_samples_are_told_from_blends_by_what_they_explain() -> None:
    features, weights, samples = victim(seed=0)
    loss = SpanLoss(features, weights).part(features.p, affine=True)
    start = random_rows(36, 24, 24**0.5, torch.Generator().manual_seed(0), weights)
    *_, fit = Levenberg().refine(loss, loss.fit(start), 24**0.5, iterations=30)
    nearest = ((fit.candidates @ samples.T).abs() / 24).amax(dim=1)
    assert float(nearest.median()) < 0.8, "a bad minimum: most of them are between samples"
    costs = removal_costs(fit, loss)
    order = nearest.argsort(descending=True)
    assert costs[order[:4]].mean() > 1.5 * costs[order[18:]].mean()
    assert worth_keeping(costs)[order[0]]


@pytest.mark.parametrize("seed", [0, 1])
def test_samples_of_equal_coefficients_are_found_though_none_stands_out(seed: int) -> None:
    features, weights, samples = victim(seed)
    phases: set[float] = set()
    found = run_attack(
        Observation(features, weights, Knowledge()),
        SplitNewton(),
        limits=Limits(),
        watch=lambda progress: phases.add(progress.step.notes["phase"]),
    ).reconstruction
    assert SELECT in phases
    assert found.outcome is Outcome.RECOVERED
    assert len(found.candidates) == 24
    assert signed_error(samples, found.candidates) < 1e-5
    assert found.iterations < 600, "adding candidates one by one takes about a thousand"


def test_an_attack_that_is_interrupted_while_it_selects_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    features, weights, _ = victim(seed=0, d=16)
    observation, method = Observation(features, weights, Knowledge()), SplitNewton(iterations=150)
    undisturbed = run_attack(observation, method).reconstruction
    selecting: list[int] = []

    def interrupt(progress: Progress) -> None:
        if progress.step.notes["phase"] == SELECT:
            selecting.append(progress.step.iteration)
            if len(selecting) == 40:
                os.kill(os.getpid(), signal.SIGINT)

    checkpoint = tmp_path / "checkpoint"
    assert run_attack(observation, method, watch=interrupt, checkpoint=checkpoint).interrupted
    resumed = run_attack(observation, method, checkpoint=checkpoint).reconstruction
    assert torch.equal(resumed.candidates, undisturbed.candidates)
    assert resumed.passes == undisturbed.passes
