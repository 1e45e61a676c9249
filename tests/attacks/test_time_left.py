"""A search that has time left goes on; one that gave up without a limit of time says so."""

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jaxtyping
import pytest
import torch

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.running.loop import Attacked, Limits, Progress, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.cli.attack import _what_time_buys
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold
from exhume.observation import Knowledge, Observation

D, SAMPLES = 6, 8


@pytest.fixture(autouse=True)
def shapes_unchecked() -> Iterator[None]:
    """Checking every call makes an attack six times slower; tests of the parts check them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def observed(equations: int, samples: int = SAMPLES) -> Observation:
    stream = torch.Generator().manual_seed(0)
    inputs = to_norm(torch.randn(samples, D, generator=stream), D**0.5)
    features = RidgeFeatures(hold(DrawnRows(0, equations, D)), activation("relu"))
    return Observation(features, torch.randn(1, samples, generator=stream) @ features(inputs), Knowledge())


BELOW = observed(equations=6 * D)
"""Fewer weights than unknowns: no start explains them."""
SHORT = SplitNewton(rounds=1)


@cache
def untimed() -> Attacked:
    return run_attack(BELOW, SHORT)


def test_the_time_is_used_until_its_end_where_no_start_explains_the_weights() -> None:
    assert not untimed().stopped
    timed = run_attack(BELOW, SHORT, limits=Limits(max(1.0, 2 * untimed().reconstruction.seconds)))
    assert timed.stopped, "by the clock"
    assert "starts" not in timed.reconstruction.facts


def test_no_number_of_iterations_ends_a_search_unless_somebody_gives_one() -> None:
    assert SplitNewton().iterations is None
    assert run_attack(BELOW, SplitNewton(iterations=7), limits=Limits(60.0)).reconstruction.iterations == 7


def test_a_search_that_gave_up_says_after_how_many_starts() -> None:
    found = untimed().reconstruction
    assert found.facts["starts"] == SHORT.attempts
    assert found.summary()["starts"] == 2
    assert _what_time_buys(2, 30.0).startswith("2 starts of 15 s each did not explain the weights; with --budget")


def test_a_search_that_explains_the_weights_says_nothing_of_more_time() -> None:
    found = run_attack(observed(equations=60 * D, samples=3), SHORT).reconstruction
    assert found.loss < 1e-9
    assert "starts" not in found.facts


def test_that_a_search_gave_up_outlives_an_interruption(tmp_path: Path) -> None:
    undisturbed = untimed()
    last = undisturbed.reconstruction.iterations

    def interrupt(progress: Progress) -> None:
        if progress.step.iteration == last - 1:
            os.kill(os.getpid(), signal.SIGINT)

    checkpoint = tmp_path / "checkpoint"
    assert run_attack(BELOW, SHORT, checkpoint=checkpoint, watch=interrupt).interrupted
    resumed = run_attack(BELOW, SHORT, checkpoint=checkpoint)
    assert resumed.reconstruction.facts == undisturbed.reconstruction.facts
    assert torch.equal(resumed.reconstruction.candidates, undisturbed.reconstruction.candidates)
