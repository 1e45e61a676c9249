import math

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import tangent, to_norm
from exhume.attacks.single_layer import split_step
from exhume.attacks.single_layer.gauss_newton import Model, curve, linearise, newton_move
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.split_step import CURVATURE_ROWS, FAR_LOSS, equations_a_row, momentum, split_move
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold

NAMES = ["relu", "tanh", "gelu"]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def model_of(
    name: str, m: int, d: int, p: int, bias: bool = False, k: int = 1, away: float = 0.3
) -> tuple[SpanLoss, Model]:
    """Candidates at some distance of the truth."""
    shift = 0.5 * normal(p, seed=9) if bias else None
    features = RidgeFeatures(hold(DrawnRows(4, p, d), dtype=torch.float64), activation(name), shift)
    candidates = to_norm(normal(m, d, seed=2), d**0.5)
    samples = to_norm(candidates + away * normal(m, d, seed=5), d**0.5)
    loss = SpanLoss(features, normal(k, m, seed=3) @ features(samples), torch.float64)
    return loss, linearise(loss, loss.fit(candidates))


def distance(loss: SpanLoss, model: Model, one: Tensor, other: Tensor) -> float:
    """Between two moves, in the norm of the curvature, over the size of the second."""

    def length(move: Tensor) -> float:
        return math.sqrt(float((move * curve(loss, model, move)).sum()))

    return length(one - other) / length(other)


@pytest.fixture
def exact_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inside solved on all rows to the end: what is left is the sampling error of M ⊗ I across S."""
    monkeypatch.setattr(split_step, "CURVATURE_ROWS", 10**6)
    monkeypatch.setattr(split_step, "INNER_PRODUCTS", 400)
    monkeypatch.setattr(split_step, "INNER_TOLERANCE", 1e-16)


@pytest.mark.usefixtures("exact_inside")
@pytest.mark.parametrize("p", [1000, 16_000])
@pytest.mark.parametrize(
    ("name", "bias", "k"), [*((name, bias, 1) for name in NAMES for bias in (0, 1)), ("gelu", 0, 2)]
)
def test_below_d_candidates_the_move_is_the_dense_one_up_to_the_root_of_md_over_p(
    name: str, bias: int, k: int, p: int
) -> None:
    m, d = 4, 12
    loss, model = model_of(name, m, d, p, bool(bias), k)
    dense = newton_move(loss, model, 0.1, products=150, forcing=1e-10)
    assert distance(loss, model, split_move(loss, model, 0.1).change, dense.change) < 2 * math.sqrt(m * d / p)


@pytest.mark.usefixtures("exact_inside")
@pytest.mark.parametrize(("m", "d"), [(6, 6), (8, 5)])
@pytest.mark.parametrize(
    ("name", "bias", "k"), [*((name, bias, 1) for name in NAMES for bias in (0, 1)), ("gelu", 0, 2)]
)
def test_from_d_candidates_on_the_move_is_the_dense_one(name: str, bias: int, k: int, m: int, d: int) -> None:
    loss, model = model_of(name, m, d, 600, bool(bias), k)
    dense = newton_move(loss, model, 0.1, products=300, forcing=1e-12)
    torch.testing.assert_close(split_move(loss, model, 0.1).change, dense.change, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("m", "d"), [(4, 12), (8, 8)])
@pytest.mark.parametrize("name", NAMES)
def test_a_subset_of_rows_and_few_products_are_good_enough_inside(name: str, m: int, d: int) -> None:
    loss, model = model_of(name, m, d, 16_000)
    dense = newton_move(loss, model, 0.1, products=100, forcing=1e-8)
    move = split_move(loss, model, 0.1)
    near = 0.3 if m < d else 0.75  # a step of zero is at 1, half of the dense step at 0.5
    assert distance(loss, model, move.change, dense.change) < near
    assert move.predicted == pytest.approx(dense.predicted, rel=0.4)


def test_below_d_candidates_no_pass_is_made_and_from_d_on_only_the_rows_of_the_curvature_are_read() -> None:
    loss, model = model_of("relu", 4, 12, 2000)
    before = loss.passes
    split_move(loss, model, 0.1, velocity=torch.zeros(4, 12, dtype=torch.float64))
    assert loss.passes == before
    loss, model = model_of("relu", 5, 5, 2000)
    before = loss.passes
    split_move(loss, model, 0.1)
    assert loss.passes - before == pytest.approx(CURVATURE_ROWS * 5**2 / 2000)


def test_below_d_candidates_the_rows_are_not_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, model = model_of("tanh", 4, 12, 2000, bias=True)
    expected = split_move(loss, model, 0.1).change
    monkeypatch.setattr(RidgeFeatures, "products", lambda *_: pytest.fail("V was touched"))
    monkeypatch.setattr(RidgeFeatures, "part", lambda *_: pytest.fail("V was touched"))
    monkeypatch.setattr("exhume.features.rows.HeldRows.block", lambda *_: pytest.fail("V was touched"))
    assert torch.equal(split_move(loss, model, 0.1).change, expected)


@pytest.mark.parametrize(("m", "d", "p", "share"), [(4, 12, 2000, 48 / 2000), (4, 12, 40, 0.9), (6, 6, 900, 0.04)])
def test_near_the_solution_momentum_is_md_over_p_times_the_tangent_part_of_the_last_change(
    m: int, d: int, p: int, share: float
) -> None:
    loss, model = model_of("gelu", m, d, p, away=0.01)
    assert model.fit.loss < FAR_LOSS
    velocity = normal(m, d, seed=8)
    plain, pushed = split_move(loss, model, 0.1), split_move(loss, model, 0.1, velocity)
    expected = share * tangent(velocity, model.fit.candidates)
    torch.testing.assert_close(pushed.change - plain.change, expected)


@pytest.mark.parametrize(("name", "k"), [("relu", 1), ("relu", 2), ("relu", 4), ("relu", 8), ("gelu", 3), ("tanh", 8)])
def test_the_spectrum_of_the_curvature_lies_where_the_momentum_takes_it_to_lie(name: str, k: int) -> None:
    """Its dense twin: H itself, over M ⊗ I, across the span of the candidates."""
    m, d, p = 8, 40, 2000
    loss, model = model_of(name, m, d, p, k=k, away=0.01)
    basis = torch.linalg.qr(model.fit.candidates.T, mode="complete").Q[:, m:]
    units = torch.eye(m * (d - m), dtype=torch.float64).reshape(-1, m, d - m) @ basis.T
    curved = torch.stack([curve(loss, model, unit) for unit in units]) @ basis
    hessian = curved.reshape(len(units), -1)
    inverse = torch.kron(model.damped_metric_inverse(0.0).contiguous(), torch.eye(d - m, dtype=torch.float64))
    values = torch.linalg.eigvals(inverse @ hessian).real
    q = m * d / (p * equations_a_row(loss, model))
    lowest, highest = (1 - math.sqrt(q)) ** 2, (1 + math.sqrt(q)) ** 2
    assert float(values.max()) < 1.25 * highest
    assert float(values.min()) > 0.6 * lowest
    assert highest < 2 * (1 + q), "what a heavy ball with momentum q and step 1 bears"
    if (name, k) == ("relu", 8):
        assert float(values.max()) > 1.02 * (1 + math.sqrt(m * d / (p * k))) ** 2, (
            "outputs are no independent equations"
        )


def test_momentum_is_larger_far_from_the_solution_and_never_above_nine_tenths() -> None:
    shares = [0.01, 0.3, 0.8, 2.0]
    assert [momentum(0.0, q) for q in shares] == [0.01, 0.3, 0.8, 0.9]
    far = [momentum(0.5, q) for q in shares]
    assert all(here >= near for here, near in zip(far, (0.01, 0.3, 0.8, 0.9), strict=True))
    assert 0.3 < far[0] < 1
    assert max(far) <= 0.9


@pytest.mark.parametrize(("m", "d"), [(4, 12), (7, 5)])
def test_a_move_keeps_norms_to_first_order_and_promises_what_its_slope_does(m: int, d: int) -> None:
    loss, model = model_of("tanh", m, d, 1500)
    move = split_move(loss, model, 0.1, normal(m, d, seed=8))
    assert (move.change * model.fit.candidates).sum(dim=1).abs().max() < 1e-9
    assert move.predicted == pytest.approx(float((model.descent * move.change).sum()) / loss.energy)


def test_candidates_that_coincide_get_a_finite_move() -> None:
    loss, model = model_of("relu", 4, 12, 1000)
    candidates = model.fit.candidates.clone()
    candidates[1] = candidates[0]
    move = split_move(loss, linearise(loss, loss.fit(candidates)), 0.1)
    assert torch.isfinite(move.change).all()
