"""Explanations that are not near: what could be exchanged, turned or split without a trace is not called recovered."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.certificate import split_rows
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer import certificate as judging
from exhume.attacks.single_layer import parts as parts_of_rows
from exhume.attacks.single_layer.alternatives import Parts, _in_a_small_sum, _left_with, exchangeable, turnable
from exhume.attacks.single_layer.blends import APART, splits, ways
from exhume.attacks.single_layer.certificate import certify, loss_on
from exhume.attacks.single_layer.linearised import Linearised
from exhume.attacks.single_layer.parts import parts
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.structure import Structure
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Certificate

D, P = 8, 400


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def in_blocks(p: int = P, d: int = D, blocks: int = 2) -> Tensor:
    rows = normal(p, d, seed=1)
    return rows * ((torch.arange(d) * blocks // d) == (torch.arange(p) % blocks)[:, None])


def certified(rows: Tensor, name: str, samples: Tensor, coefficients: list[float], candidates: Tensor) -> Certificate:
    """The certificate of candidates for exact weights of samples."""
    features = RidgeFeatures(HeldRows(rows), activation(name))
    observation = Observation(
        features, torch.tensor([coefficients], dtype=torch.float64) @ features(samples), Knowledge()
    )
    split = split_rows(len(rows))
    loss = SpanLoss(features.part(0, split.used), observation.weights[:, : split.used], torch.float64)
    unseen = partial(loss_on, observation, split.used, len(rows) - split.used)
    return certify(loss, loss.fit(candidates), unseen, split, observation.weights)


def called(certificate: Certificate) -> list[bool]:
    return [value >= 0.5 for value in certificate.confidence]


def turned_about(rows: Tensor) -> Tensor:
    """The same rows in other coordinates, where no number of them is zero."""
    return rows @ torch.linalg.qr(normal(rows.shape[1], rows.shape[1], seed=9)).Q


@pytest.mark.parametrize("leak", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize("blocks", [2, 4])
def test_rows_that_see_parts_are_found_in_any_coordinates_and_whatever_they_leak(blocks: int, leak: float) -> None:
    rows = in_blocks(blocks=blocks) + leak * normal(P, D, seed=11)
    truth = {frozenset(range(block, P, blocks)) for block in range(blocks)}
    for some in (rows, turned_about(rows)):
        found = {frozenset(group.nonzero()[:, 0].tolist()) for group in parts(some)}
        assert truth <= found
        assert len(found) == 2 * (blocks - 1), "those, and unions on the way"


def test_rows_that_see_the_whole_have_no_parts() -> None:
    assert parts(normal(P, D, seed=1)) == []
    assert parts(normal(P, D, seed=1) * torch.logspace(0, -4, D, dtype=torch.float64)) == []
    patches = torch.zeros(P, D, dtype=torch.float64)
    for row in range(P):
        patches[row, row % (D - 3) : row % (D - 3) + 4] = normal(4, seed=row)
    assert parts(patches) == [], "each patch overlaps the next"
    assert parts(normal(1, D, seed=1)) == parts(normal(9, 1, seed=1)) == []


@pytest.mark.parametrize("p", [150, 400])
def test_in_many_dimensions_parts_are_found_in_the_rows_own_coordinates(
    p: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are fewer rows than dimensions; the inverse is the same."""
    monkeypatch.setattr(parts_of_rows, "DENSE", 100)
    rows = in_blocks(p=p, d=200)
    found = {frozenset(group.nonzero()[:, 0].tolist()) for group in parts(rows)}
    assert found == {frozenset(range(block, p, 2)) for block in range(2)}
    assert parts(normal(p, 200, seed=1)) == []
    torch.testing.assert_close(parts_of_rows.inverse(rows), torch.linalg.pinv(rows).T, rtol=1e-4, atol=1e-6)


def test_parts_of_more_rows_than_are_looked_at_are_whole() -> None:
    rows = turned_about(in_blocks(p=2500))
    assert sorted(int(group.sum()) for group in parts(rows)) == [1250, 1250]


def exchanged(samples: Tensor, factor: float) -> Tensor:
    changed = samples.clone()
    half = samples.shape[1] // 2
    changed[0, half:], changed[1, half:] = factor * samples[1, half:], samples[0, half:] / factor
    return changed


@pytest.mark.parametrize(
    ("name", "coefficients", "exchange"),
    [
        ("relu", [1.0, 0.6, -0.8], True),
        ("gelu", [0.7, 0.7, -0.8], True),
        ("gelu", [1.0, 0.6, -0.8], False),
    ],
)
def test_halves_that_could_be_exchanged_without_a_trace_are_not_called_recovered(
    name: str, coefficients: list[float], exchange: bool
) -> None:
    """Of block-diagonal rows; where an exchange would show, both are called."""
    samples = to_norm(normal(3, D, seed=2), D**0.5)
    assert called(certified(in_blocks(), name, samples, coefficients, samples))[:2] == [not exchange] * 2
    if not exchange:
        return
    factor = coefficients[1] / coefficients[0] if name == "relu" else 1.0
    other = exchanged(samples, factor)
    other = to_norm(other, D**0.5) if name == "relu" else other
    certificate = certified(in_blocks(), name, samples, coefficients, other)
    assert certificate.held_out_loss is not None
    assert certificate.held_out_loss < 1e-20, "the weights do not tell"
    assert called(certificate)[:2] == [False, False]


@pytest.mark.parametrize(("name", "coefficients"), [("relu", [1.0, 1.2, -0.8]), ("gelu", [1.0, 1.0, -0.8])])
@pytest.mark.parametrize("leak", [1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("spacing", [2.0**-11, 2.0**-7])
@pytest.mark.parametrize("few", [True, False])
def test_halves_that_noise_lets_exchange_are_not_called_where_rows_nearly_see_one_of_them_only(
    name: str, coefficients: list[float], leak: float, spacing: float, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the candidates with halves of two samples: the true ones may be told by how well they explain.

    `few` unknowns: by factors, and as if they were many, by products.
    """
    if not few:
        monkeypatch.setattr(judging, "DENSE", 0)
    rows = in_blocks(p=600, d=12) + leak * normal(600, 12, seed=11)
    features = RidgeFeatures(HeldRows(rows), activation(name))
    samples = to_norm(normal(3, 12, seed=2), 12**0.5)
    weights = torch.tensor([coefficients], dtype=torch.float64) @ features(samples)
    signs = normal(*weights.shape, seed=12).sign()
    weights = weights * (1 + spacing / 2 * signs)
    wrong = samples.clone()
    factor = coefficients[1] / coefficients[0]
    wrong[0, 6:], wrong[1, 6:] = factor * samples[1, 6:], samples[0, 6:] / factor
    wrong = to_norm(wrong, 12**0.5) if name == "relu" else wrong
    split = split_rows(600)
    loss = SpanLoss(features.part(0, split.used), weights[:, : split.used], torch.float64)
    unseen = partial(loss_on, Observation(features, weights, Knowledge()), split.used, 600 - split.used)
    assert called(certify(loss, loss.fit(wrong), unseen, split, weights))[:2] == [False, False]


def test_what_an_exchange_leaves_is_looked_at_from_where_it_leads() -> None:
    """Where norms are known, the way from a wrong pair to the true one is an exchange and a change of scale: far."""
    rows = in_blocks(p=600, d=12) + 1e-2 * normal(600, 12, seed=11)
    features = RidgeFeatures(HeldRows(rows), activation("gelu"))
    samples = normal(2, 12, seed=2) * torch.tensor([[*[1.0] * 6, *[1.5] * 6], [1.0] * 12]).double()
    samples = to_norm(samples, 12**0.5)
    weights = torch.tensor([[1.0, 0.97]], dtype=torch.float64) @ features(samples)
    loss = SpanLoss(features, weights, torch.float64)
    wrong = to_norm(exchanged(samples, 1.0), 12**0.5)
    at = Linearised.at(loss, loss.fit(wrong))
    back = to_norm(exchanged(wrong, 1.0), 12**0.5)
    found = _left_with(at, [0, 1], back, False)
    there = Linearised.at(loss, loss.fit(back))
    naive = float(there.not_made_up(there.residual[None]).square().sum())
    assert found == pytest.approx(naive, rel=1e-6)
    from_here = at.change(at.features(back) - at.features(wrong)).sum(dim=0)[None]
    here = float(at.not_made_up(at.residual[None]).square().sum() + at.rise(at.not_made_up(from_here))[0])
    assert here > 3 * found, "linearised at the wrong pair, the way is too long"


def test_halves_of_opposite_samples_that_odd_features_let_exchange_are_not_called() -> None:
    samples = to_norm(normal(2, D, seed=2), D**0.5)
    for candidates in (samples, exchanged(samples, -1.0)):
        certificate = certified(in_blocks(), "tanh", samples, [1.0, -1.0], candidates)
        assert certificate.held_out_loss is not None
        assert certificate.held_out_loss < 1e-20
        assert called(certificate) == [False, False]
        assert certificate.doubts == {"parts": 2}


def test_halves_whose_multiples_add_up_to_zero_may_be_turned_together() -> None:
    samples, coefficients = normal(3, D, seed=2), torch.tensor([1.0, -0.7, 0.5], dtype=torch.float64)
    samples[2, D // 2 :] = -(coefficients[:2] @ samples[:2, D // 2 :]) / coefficients[2]
    turned = torch.cat([samples[:, : D // 2], -samples[:, D // 2 :]], dim=1)
    rounded = [some.float().double() for some in (samples, turned)]
    for name, candidates in itertools.product(("softplus", "gelu"), (samples, turned, *rounded)):
        certificate = certified(in_blocks(), name, samples, coefficients.tolist(), candidates)
        assert certificate.held_out_loss is not None
        assert certificate.held_out_loss < 1e-12
        assert called(certificate) == [False] * 3


@pytest.mark.parametrize(
    ("name", "coefficients", "lost"),
    [
        ("sigmoid", [1.0, -1.0, 0.4], [True, True, False]),
        ("sigmoid", [1.0, -0.7, 0.4], [False, False, False]),
        ("relu", [1.0, -0.7, 0.4], [False, False, False]),
    ],
)
def test_signs_that_the_weights_do_not_tell_are_not_called_recovered(
    name: str, coefficients: list[float], lost: list[bool]
) -> None:
    samples = to_norm(normal(3, D, seed=2), D**0.5)
    rows = normal(P, D, seed=1) / math.sqrt(D)
    turned = torch.tensor([-1.0 if some else 1.0 for some in lost], dtype=torch.float64)[:, None] * samples
    for candidates in (samples, turned):
        certificate = certified(rows, name, samples, coefficients, candidates)
        assert certificate.held_out_loss is not None
        assert certificate.held_out_loss < 1e-20
        assert called(certificate) == [not some for some in lost]
        assert certificate.doubts == ({"sign": sum(lost)} if any(lost) else {})
        assert certificate.doubtful == ({"sign": (0, 1)} if any(lost) else {})


def test_of_relu_samples_whose_multiples_add_up_to_zero_any_sign_may_be_wrong() -> None:
    """Three vectors in a plane: the linear part of the weights cannot tell all of them turned."""
    samples = to_norm(normal(3, D, seed=2), D**0.5)
    samples[2] = to_norm((samples[0] + samples[1])[None], D**0.5)[0]
    size = float((samples[0] + samples[1]).norm() / D**0.5)
    rows = normal(P, D, seed=1) / math.sqrt(D)
    assert called(certified(rows, "relu", samples, [1.0, 1.0, -size], samples)) == [False] * 3
    assert called(certified(rows, "relu", samples, [1.0, 1.0, -0.5 * size], samples)) == [True] * 3


def linearised(noise: float, name: str = "tanh", seed: int = 0) -> tuple[SpanLoss, Linearised]:
    features = RidgeFeatures(HeldRows(normal(P, D, seed=1) / math.sqrt(D)), activation(name))
    samples = to_norm(normal(3, D, seed=2), D**0.5)
    weights = torch.tensor([[1.0, -0.7, 0.1]], dtype=torch.float64) @ features(samples)
    loss = SpanLoss(features, weights + noise * normal(1, P, seed=seed), torch.float64)
    return loss, Linearised.at(loss, loss.fit(samples))


def test_what_a_split_costs_is_the_least_of_its_directions() -> None:
    """The naive twin: one candidate and direction at a time, each projected by a regression on all columns."""
    loss, at = linearised(0.0)
    found = splits(at, free_norms=False).costs
    columns, costs = torch.cat([at.spanned, at.tangents], dim=1), torch.full((3,), torch.inf, dtype=torch.float64)
    for index, way in ((index, way[index]) for way in ways(at.candidates) for index in range(3)):
        middle = at.candidates[index]
        way = way - (way @ middle) / (middle @ middle) * middle
        way = APART * middle.norm() * way / way.norm()
        ends, between = loss.features(torch.stack([middle + way, middle - way])), loss.features(middle[None])
        split = at.amplitudes[index] * (ends.mean(dim=0) - between[0])
        left = split - columns @ torch.linalg.lstsq(columns, split[:, None]).solution[:, 0]
        costs[index] = min(costs[index], left.square().sum())
    torch.testing.assert_close(found, costs, rtol=1e-6, atol=0)
    assert float(found[2]) < 0.1 * float(found[:2].min()), "the smaller its coefficient, the easier a split is hidden"


def test_others_move_against_a_split_as_a_regression_on_all_columns_says() -> None:
    """The naive twin: columns by differences, one split at a time. A split grows until it shows, and then they stop."""
    loss, at = linearised(1e-4)
    found, step = splits(at, free_norms=False), 1e-6
    columns = list(loss.features(at.candidates))
    for candidate, amplitude, basis in zip(at.candidates, at.amplitudes, at.bases, strict=True):
        for way in basis.T:
            ends = loss.features(torch.stack([candidate + step * way, candidate - step * way]))
            columns.append(amplitude * (ends[0] - ends[1]) / (2 * step))
    matrix, norms = torch.stack(columns, dim=1), at.candidates.norm(dim=1)
    assert found.moves is not None
    for place, way in enumerate(ways(at.candidates)):
        for index, middle in enumerate(at.candidates):
            aside = way[index] - (way[index] @ middle) / (middle @ middle) * middle
            aside = APART * middle.norm() * aside / aside.norm()
            ends, between = loss.features(torch.stack([middle + aside, middle - aside])), loss.features(middle[None])
            split = at.amplitudes[index] * (ends.mean(dim=0) - between[0])
            solved = torch.linalg.lstsq(matrix, split[:, None]).solution[len(norms) :, 0].reshape(len(norms), -1)
            torch.testing.assert_close(found.moves[place, index], solved.norm(dim=1) / norms, rtol=1e-4, atol=1e-9)
    assert not found.swayed(0.0).any()
    hidden = 1.5 * float(found.costs.min())  # of the third, whose coefficient is small, and of no other
    assert (found.costs <= hidden).tolist() == [False, False, True]
    left, along = found.left[:, 2], found.along[:, 2]
    size = (along + (along.square() + left * hidden).sqrt()) / left
    torch.testing.assert_close(size.square() * left - 2 * size * along, torch.full_like(size, hidden))
    moved = (size[:, None] * found.moves[:, 2]).square().amax(dim=0)
    torch.testing.assert_close(found.swayed(hidden), moved)
    assert float(moved[:2].min()) > 0


def test_a_blend_of_two_samples_within_the_noise_is_not_called_recovered() -> None:
    d, p, apart = 6, 300, 0.2
    rows = normal(p, d, seed=1) / math.sqrt(d)
    features = RidgeFeatures(HeldRows(rows), activation("softplus"))
    blend, way = to_norm(normal(2, d, seed=2), d**0.5)
    way = way - (way @ blend) / d * blend
    way = apart * math.sqrt(d) * way / way.norm()
    samples = to_norm(torch.stack([blend + way, blend - way]), d**0.5)
    weights = torch.tensor([[0.5, 0.5]], dtype=torch.float64) @ features(samples)
    weights = weights + 1e-2 * weights.std() * normal(1, p, seed=3)
    split = split_rows(p)
    loss = SpanLoss(features.part(0, split.used), weights[:, : split.used], torch.float64)
    candidate = to_norm(blend[None], d**0.5)
    fit = loss.fit(candidate)
    at = Linearised.at(loss, fit)
    assert float((at.left_out * at.variances() / d).sqrt()) < 0.03, "noise alone would move it by little"
    unseen = partial(loss_on, Observation(features, weights, Knowledge()), split.used, 15)
    assert called(certify(loss, fit, unseen, split, weights)) == [False]


def test_rows_that_nearly_repeat_each_other_certify_nobody() -> None:
    """12 rows, 20 copies of each: 24 unknowns fit them in many ways, and held-out copies as well."""
    rows = (normal(12, D, seed=1) / math.sqrt(D)).repeat(20, 1)
    rows = rows + 1e-6 * normal(240, D, seed=2)
    samples = to_norm(normal(3, D, seed=3), D**0.5)
    features = RidgeFeatures(HeldRows(rows), activation("softplus"))
    loss = SpanLoss(features, features(samples).sum(dim=0)[None], torch.float64)
    at = Linearised.at(loss, loss.fit(samples))
    assert float((1e-12 * at.variances() / D).sqrt().min()) > 0.1, "held-out weights at 1e-12 would not tell"


@pytest.mark.parametrize(("kind", "structured"), [("noise", False), ("a sample", True), ("rounding", False)])
def test_noise_is_not_predicted_and_a_missing_sample_is(kind: str, structured: bool) -> None:
    features = RidgeFeatures(HeldRows(normal(P, D, seed=1) / math.sqrt(D)), activation("gelu"))
    samples = to_norm(normal(3, D, seed=2), D**0.5)
    weights = torch.tensor([[1.0, -0.7, 0.5]], dtype=torch.float64) @ features(samples)
    if kind == "rounding":
        weights = weights.to(torch.bfloat16).double()
    rest = {"noise": 0.01 * normal(1, P, seed=5), "a sample": 0.01 * features(samples.flip(1)[:1])}.get(kind, 0.0)
    loss = SpanLoss(features, weights + rest, torch.float64)
    fit = loss.fit(samples)
    share = Structure.at(loss, fit).predictable_share(fit.residual)
    assert share > 0.5 if structured else share < 0.15


def test_the_functions_of_alternatives_say_which() -> None:
    _, at = linearised(0.0, "sigmoid")
    known = Parts.of(at)
    assert not bool(exchangeable(at, known, 1e-9, False, torch.ones(3, dtype=torch.bool)).any())
    assert not bool(turnable(at, known, 1e-9).any())
    assert bool(turnable(at, known, 1e9).all())


def test_a_sum_that_is_small_for_a_set_of_vectors_is_found_among_few_and_among_many() -> None:
    """The twin goes through all sets with itertools."""
    vectors = normal(6, 3, seed=4)
    vectors[4] = -(vectors[0] + vectors[2]) + 1e-4
    hidden = 1e-6
    naive = torch.zeros(6, dtype=torch.bool)
    for size in range(1, 7):
        for chosen in itertools.combinations(range(6), size):
            if float(vectors[list(chosen)].sum(dim=0).square().sum()) <= hidden:
                naive[list(chosen)] = True
    assert naive.tolist() == [True, False, True, False, True, False]
    lifted = torch.cat([vectors, torch.zeros(6, 7, dtype=torch.float64)], dim=1)
    assert _in_a_small_sum(lifted, torch.zeros(10, dtype=torch.float64), hidden).tolist() == naive.tolist()


def test_a_set_whose_sum_is_near_what_is_left_is_a_better_explanation() -> None:
    vectors = normal(3, 40, seed=4)
    near = vectors[0] + vectors[2] - 0.6 * vectors[1]
    assert _in_a_small_sum(vectors, near, 0.0).tolist() == [True, False, True]


@pytest.mark.parametrize(("dimensions", "certain"), [(1, False), (6, True)])
def test_of_many_numbers_some_set_adds_up_to_any_sum(dimensions: int, certain: bool) -> None:
    """20 numbers have a million sums: one is within 1e-4 of any. Vectors of six numbers have none so close."""
    vectors = normal(20, dimensions, seed=5)
    nothing = torch.zeros(dimensions, dtype=torch.float64)
    assert bool(_in_a_small_sum(vectors, nothing, 1e-8).any()) is not certain


@pytest.mark.parametrize(("copies", "equations"), [(1, 240), (20, 12)])
def test_copies_of_a_row_are_one_equation(copies: int, equations: int) -> None:
    rows = (normal(240 // copies, D, seed=1) / math.sqrt(D)).repeat(copies, 1) + 1e-7 * normal(240, D, seed=2)
    features = RidgeFeatures(HeldRows(rows), activation("relu"))
    samples = to_norm(normal(2, D, seed=3), D**0.5)
    loss = SpanLoss(features, torch.ones(1, 2, dtype=torch.float64) @ features(samples), torch.float64)
    assert Structure.at(loss, loss.fit(samples)).equations(1e-10) == equations


def test_a_candidate_that_stands_only_with_the_help_of_one_that_could_be_anywhere_is_not_called() -> None:
    """Twin samples with opposite coefficients: their sum shows, where either of them is does not."""
    rows = normal(P, D, seed=1) / math.sqrt(D)
    samples = to_norm(normal(3, D, seed=2), D**0.5)
    twin = to_norm(samples[:1] + 1e-5 * normal(1, D, seed=7), D**0.5)
    both = torch.cat([samples, twin])
    alone = certified(rows, "gelu", samples, [1.0, -0.7, 0.4], samples)
    assert called(alone) == [True] * 3
    certificate = certified(rows, "gelu", both, [1e3, -0.7, 0.4, -1e3], both)
    assert called(certificate)[0] is called(certificate)[3] is False
