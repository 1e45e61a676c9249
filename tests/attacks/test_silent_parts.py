"""The parts of the silent-units attack, each beside a naive twin or a closed form."""

import torch

from exhume.attacks.foundation.spectrum import spectrum
from exhume.attacks.silent import many_duals
from exhume.attacks.silent.duals import weighted_duals, zero_odds
from exhume.attacks.silent.evidence import evidence, taken_apart, zeros_of
from exhume.attacks.silent.joint import completed, places
from exhume.attacks.silent.lone_units import lone_samples
from exhume.attacks.silent.placing import complement, logistic_step
from exhume.attacks.silent.seed_search import default_rows, try_seeds
from exhume.layer_states import changed
from silent_victims import span_of, train


def test_the_change_is_made_of_the_columns_of_the_duals() -> None:
    """Y = C Z, and silent units have zeros there."""
    span, points, duals = span_of()
    columns = span.rows @ torch.linalg.inv(points)
    assert torch.allclose(columns @ points, span.rows, atol=1e-8)
    told = evidence(span, duals, points)
    assert bool(told.certain.all())
    assert float(told.silence.min()) > 0.9


def test_a_combination_of_two_duals_is_not_certain_and_is_taken_apart() -> None:
    span, points, duals = span_of()
    blind = zeros_of(span, duals[:2])
    extra = int((~blind[0] & ~blind[1]).nonzero()[0])  # one more unit fixes the ratio
    first, second = span.rows[extra] @ duals[0], span.rows[extra] @ duals[1]
    mixed = duals[0] * second - duals[1] * first
    mixed = (mixed / mixed.norm())[None]
    assert not bool(evidence(span, mixed, points[:1]).certain)
    other = duals[0] - (duals[0] @ mixed[0]) * mixed[0]
    pair = taken_apart(span, mixed[0], other / other.norm())
    assert float((pair @ duals[:2].T).abs().amax(dim=0).min()) > 1 - 1e-8


def test_reweighting_solves_the_constrained_problem() -> None:
    """One round is weighted least squares with z·q = 1, whose solution is M⁻¹ z / (z·M⁻¹ z)."""
    span, points, _ = span_of()
    weights = ((span.depth(points[:1]) + 0.3) / 1.3).clamp(0, 1).square()[0]
    gram = (span.rows * weights[:, None]).T @ span.rows
    naive = torch.linalg.solve(gram, points[0])
    found = weighted_duals(span, points[:1], rounds=1)[0]
    assert abs(float(found @ naive / naive.norm())) > 1 - 1e-9


def test_conjugate_gradients_solve_what_gram_matrices_solve() -> None:
    span, points, _ = span_of()
    weights = torch.sigmoid(zero_odds(span, points))
    grams = torch.stack([(span.rows * own[:, None]).T @ span.rows for own in weights / weights.sum(dim=1)[:, None]])
    naive = torch.linalg.solve(grams + many_duals.DAMPING * torch.eye(span.r).double(), points)
    found = many_duals._solved(span, weights, points, points, products=3 * span.r)
    assert float((found * naive).sum(dim=1).div(naive.norm(dim=1)).min()) > 1 - 1e-9


def test_many_duals_are_exact_from_places_that_are_roughly_right() -> None:
    """Held against the duals of the truth; a place that is nobody's brings none."""
    span, points, duals = span_of()
    stream = torch.Generator().manual_seed(1)
    rough = span.facing(points + 0.02 * torch.randn(points.shape, generator=stream).double())
    ended = many_duals.many_duals(span, rough)
    alike = (ended.duals @ duals.T).abs().amax(dim=1)
    assert len(ended.duals) >= 0.9 * span.r
    assert float(alike.min()) > 1 - 1e-8
    nobody = span.facing(torch.randn(5, span.r, generator=stream).double())
    lost = many_duals.many_duals(span, nobody)
    assert not bool(
        evidence(span, lost.duals, lost.points).certain[(lost.duals @ duals.T).abs().amax(dim=1) < 0.999].any()
    )


def test_newton_steps_reach_the_logistic_regression() -> None:
    stream = torch.Generator().manual_seed(0)
    units = torch.randn(300, 4, generator=stream, dtype=torch.float64)
    silent = (units @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64) < 0).double()[None]
    point, ridge = torch.zeros(1, 4, dtype=torch.float64), 1.0
    for _ in range(60):
        point = logistic_step((units,), point, silent, ridge)
    naive = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([naive], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        fit = torch.nn.functional.binary_cross_entropy_with_logits(units @ naive, 1 - silent[0], reduction="sum")
        total = fit + ridge / 2 * naive.square().sum()
        total.backward()
        return total

    optimiser.step(loss)
    assert torch.allclose(point[0], naive.detach(), atol=1e-5)


def test_places_are_the_inverse_of_all_duals_and_a_fit_without_some() -> None:
    span, points, duals = span_of()
    assert torch.allclose(places(span, duals), points, atol=1e-6)
    fitted = places(span, duals[:-2])
    assert float((fitted * points[:-2]).sum(dim=1).min()) > 0.98


def test_the_last_sample_needs_no_search() -> None:
    span, points, duals = span_of()
    whole = completed(span, duals[:-1])
    assert len(whole) == span.r
    assert abs(float(places(span, whole)[-1] @ points[-1])) > 1 - 1e-8


def test_the_complement_is_orthonormal_and_orthogonal() -> None:
    _, _, duals = span_of()
    basis = complement(duals[:5])
    assert torch.allclose(basis.T @ basis, torch.eye(basis.shape[1], dtype=basis.dtype), atol=1e-10)
    assert float((duals[:5] @ basis).abs().max()) < 1e-10


def test_rows_of_units_that_fired_alone_are_samples() -> None:
    stream = torch.Generator().manual_seed(0)
    samples = torch.randn(30, 6, generator=stream, dtype=torch.float64)
    extended = torch.cat([samples, torch.ones(30, 1, dtype=torch.float64)], dim=1)
    coefficients = torch.randn(40, 30, generator=stream, dtype=torch.float64)
    coefficients[:2] = 0
    coefficients[0, 3], coefficients[1, 3] = 2.0, -0.5  # two units that only sample 3 moved
    found = lone_samples(coefficients @ extended, 1e-12, bias=True)
    assert found.units == (2,)
    assert torch.allclose(found.inputs[0], samples[3], atol=1e-9)


def test_the_seed_of_the_start_is_found_among_others() -> None:
    victim = train(seed=7)
    draw = default_rows(victim.layer)
    assert torch.equal(draw(7, 400), victim.before["0.weight"])
    tried = list(try_seeds(victim.layer.weight.detach(), draw, 50))
    assert [one.seed for one in tried if one.fits] == [7]
    assert len(tried) == 8


def test_weights_of_another_training_fit_no_seed() -> None:
    victim = train(seed=7, optimiser="Adam", lr=0.1)
    assert not any(one.fits for one in try_seeds(victim.layer.weight.detach(), default_rows(victim.layer), 10))


def test_units_and_columns_that_never_changed_do_not_hide_the_rank() -> None:
    """Few samples leave units that never fired; the spectrum is that of the others alone."""
    stream = torch.Generator().manual_seed(0)
    change = torch.randn(60, 4, generator=stream) @ torch.randn(4, 90, generator=stream)
    start = torch.randn(60, 90, generator=stream)
    change[40:], change[:, 70:] = 0, 0
    noise = 1e-4 * torch.randn(40, 70, generator=stream)
    end = start.double() + change.double()
    end[:40, :70] += noise.double()
    whole, part = (spectrum(changed(a, b, bias=False)) for a, b in ((start.double(), end), _alive(start, end)))
    assert (whole.rank, part.rank) == (4, 4)
    assert abs(whole.noise / part.noise - 1) < 1e-3
    assert torch.allclose(whole.values, part.values, rtol=1e-4)


def _alive(start: torch.Tensor, end: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return start[:40, :70].double(), end[:40, :70]
