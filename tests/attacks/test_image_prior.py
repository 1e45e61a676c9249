"""The attack with a prior, on small images that obey the law of its spectrum."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.parametrisation import Subspace
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.foundation.state import State
from exhume.attacks.prior.attack import ImagePrior
from exhume.attacks.prior.loss import PriorFit, PriorLoss
from exhume.attacks.prior.search import Level, PriorFits, merged, proposals, pruned, refined
from exhume.attacks.prior.spectrum import FrequencySpectrum, SpanBasis
from exhume.attacks.running.loop import Limits, run_attack
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold
from exhume.frequencies import lowest
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Outcome

SHAPE, D, N = (3, 6, 6), 108, 4


def images(n: int = N) -> torch.Tensor:
    basis = FrequencySpectrum().basis(SHAPE)
    noise = torch.randn(n, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return to_norm(basis.lift(noise * basis.variance.sqrt()), math.sqrt(D)).float()


def observed(ratio: float, told: int | None = N) -> Observation:
    features = RidgeFeatures(hold(DrawnRows(5, round(ratio * D * N), D)), activation("relu"))
    coefficients = torch.tensor([[1.0, -0.8, 1.2, -0.9]])
    return Observation(features, coefficients @ features(images()), Knowledge(told, math.sqrt(D)), SHAPE)


def cosines(found: torch.Tensor, r: int) -> torch.Tensor:
    truth, coarse = lowest(images(), SHAPE, r), lowest(found, SHAPE, r)
    return torch.nn.functional.cosine_similarity(truth[:, None], coarse[None], dim=2).abs().amax(dim=1)


def test_coarse_images_come_back_at_the_threshold() -> None:
    found = run_attack(observed(1.0), ImagePrior()).reconstruction
    summary = found.summary()
    assert summary["outcome"] == Outcome.PARTIAL.value
    assert summary["prior"] == "image (1/f)"
    assert 12 <= summary["resolution"]["frequencies"] < D
    assert bool((cosines(found.candidates, 24) > 0.9).all())


def test_what_leaves_too_much_unexplained_is_shown_and_not_trusted() -> None:
    found = run_attack(observed(0.8), ImagePrior()).reconstruction
    assert found.outcome is not Outcome.PARTIAL
    assert not any(found.certificate.confidence)
    assert bool((cosines(found.candidates, 24) > 0.9).all())


@pytest.mark.slow
def test_without_the_prior_they_do_not() -> None:
    found = run_attack(observed(0.8), SplitNewton(rounds=2, attempts=1)).reconstruction
    assert found.outcome != Outcome.RECOVERED
    assert not bool((cosines(found.candidates, 24) > 0.9).all())


@pytest.mark.slow
def test_above_the_threshold_whole_images_do() -> None:
    found = run_attack(observed(3.0), ImagePrior()).reconstruction
    assert found.outcome is Outcome.RECOVERED
    assert float(cosines(found.candidates, D).min()) > 0.9999
    assert found.summary()["resolution"] == {"frequencies": D, "side": 6}


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on_to_the_same_end() -> None:
    from exhume.attacks.foundation.judgement import Resources
    from exhume.attacks.prior.problem import PriorProblem

    resources = Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    method = ImagePrior()

    def last(resume: State | None) -> tuple[list[int], list[State], torch.Tensor]:
        problem = method.open_case(observed(0.5), 0, 0.05, resources).problem
        assert isinstance(problem, PriorProblem)
        steps = list(method.steps(problem, resume))
        return [step.iteration for step in steps], [step.state for step in steps], steps[-1].candidates

    iterations, states, whole = last(None)
    middle = states[len(states) // 2]
    again, _, rest = last(middle)
    assert again[0] == middle.numbers["iteration"] + 1
    assert again[-1] == iterations[-1]
    torch.testing.assert_close(rest, whole)


def test_a_time_limit_keeps_what_was_found() -> None:
    attacked = run_attack(observed(0.5), ImagePrior(), limits=Limits(seconds=1e-3))
    assert attacked.stopped
    assert attacked.reconstruction.candidates.shape[1] == D


SPAN = 24


def in_a_span(ratio: float) -> tuple[Observation, Tensor]:
    """Samples in the span of a few images, and p = ratio · r n weights: far fewer than dn."""
    span = images(SPAN)
    mixed = torch.randn(N, SPAN, generator=torch.Generator().manual_seed(3)) @ span
    samples = to_norm(mixed, math.sqrt(D))
    features = RidgeFeatures(hold(DrawnRows(6, round(ratio * SPAN * N), D)), activation("relu"))
    weights = torch.tensor([[1.0, -0.8, 1.2, -0.9]]) @ features(samples)
    return Observation(features, weights, Knowledge(N, math.sqrt(D)), SHAPE, subspace=span.T), samples


def nearest(samples: Tensor, found: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(samples[:, None], found[None], dim=2).abs().amax(dim=1)


def test_inside_a_subspace_the_prior_is_the_law_of_its_directions() -> None:
    span = Subspace.spanned_by(images(SPAN).double().T)
    basis = SpanBasis.inside(span, FrequencySpectrum(), SHAPE)
    assert (basis.d, basis.r, basis.cut(7).r) == (SPAN, SPAN, 7)
    assert bool((basis.variance.diff() <= 0).all()), "coarsest first"
    torch.testing.assert_close(basis.lift(basis.lower(torch.eye(SPAN).double())), torch.eye(SPAN).double())
    law = FrequencySpectrum().basis(SHAPE)
    pictures = law.lift(torch.eye(D).double() * law.variance.sqrt())  # their covariance is that of the law
    seen = basis.lower(span.lower(pictures))
    covariance = seen.T @ seen
    torch.testing.assert_close(covariance / covariance.diagonal().mean(), torch.diag(basis.variance))


def test_a_prior_inside_a_subspace_ends_with_whole_images_where_the_weights_are_enough_for_it() -> None:
    observation, samples = in_a_span(3.0)
    assert observation.p < D * N
    found = run_attack(observation, ImagePrior(within=SubspaceAttack("given"))).reconstruction
    assert found.outcome is Outcome.RECOVERED
    assert float(nearest(samples, found.candidates).min()) > 0.9999
    assert found.facts["subspace"] == f"given subspace: {SPAN} of {D} dimensions"


def test_below_that_it_says_how_many_directions_are_to_be_trusted() -> None:
    observation, samples = in_a_span(0.9)
    found = run_attack(observation, ImagePrior(within=SubspaceAttack("given"))).reconstruction
    told = found.facts["resolution"]
    assert found.outcome is not Outcome.RECOVERED
    assert told["of"] == SPAN
    assert 1 <= told["directions"] <= SPAN
    assert float(nearest(samples, found.candidates).mean()) > 0.8


def test_a_hard_cut_leaves_nothing_finer() -> None:
    found = run_attack(observed(3.0), ImagePrior(resolution=30)).reconstruction
    coarse = lowest(found.candidates, SHAPE, 30)
    torch.testing.assert_close(coarse.norm(dim=1), found.candidates.norm(dim=1), rtol=1e-4, atol=0)
    with pytest.raises(UsageError, match="resolution of at least 1"):
        ImagePrior(resolution=0)


def test_proposals_point_to_what_is_missing() -> None:
    basis = FrequencySpectrum().basis(SHAPE)
    rows = basis.lower(DrawnRows(7, 6000, D).block(0, 6000))
    level = Level(basis.variance, 0.0, 0.1, math.sqrt(D), 1.0)
    truth = basis.lower(images(1))
    features = RidgeFeatures(HeldRows(rows), activation("relu"))
    loss = PriorLoss(features, features(truth), 0.1 / level.variance)
    found = proposals(loss, level, loss.weights, 3)
    assert found.shape == (3, D)
    assert float(torch.nn.functional.cosine_similarity(found[:1], truth).abs()) > 0.9


def result(search: PriorFits) -> PriorFit:
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: PriorFit = end.value
            return found


def test_copies_are_merged_and_what_is_not_needed_goes() -> None:
    basis = FrequencySpectrum().basis(SHAPE)
    rows = basis.lower(DrawnRows(8, 900, D).block(0, 900))
    level = Level(basis.variance, 0.0, 1e-3, math.sqrt(D), 1.0)
    truth = basis.lower(images())
    features = RidgeFeatures(HeldRows(rows), activation("relu"))
    weights = torch.tensor([[1.0, -0.8, 1.2, -0.9]]) @ features(truth)
    loss = PriorLoss(features, weights / weights.square().mean().sqrt(), 1e-3 / level.variance)
    noise = torch.randn(3, D, generator=torch.Generator().manual_seed(2))
    copies = to_norm(torch.cat([truth, truth[:2] + 0.05 * noise[:2]]), math.sqrt(D))
    assert len(result(merged(loss, level, loss.fit(copies))).candidates) == N
    needless = to_norm(torch.cat([truth, noise[2:]]), math.sqrt(D))
    unseen = RidgeFeatures(HeldRows(basis.lower(DrawnRows(9, 400, D).block(0, 400))), activation("relu"))
    others = torch.tensor([[1.0, -0.8, 1.2, -0.9]]) @ unseen(truth) / weights.square().mean().sqrt()
    settled = result(refined(loss, loss.fit(needless), math.sqrt(D), 40))
    kept = result(pruned(loss, level, settled, lambda fit: loss.predict_loss(fit, unseen, others)))
    assert len(kept.candidates) == N


def test_data_that_are_no_images_are_refused() -> None:
    with pytest.raises(UsageError, match="observation of images"):
        run_attack(replace(observed(0.5), image_shape=None), ImagePrior())
