"""Pictures inside their own span: the layout is found, the edges are second differences, mixtures come apart."""

import copy
from dataclasses import dataclass

import pytest
import torch
from skimage.data import lfw_subset

import exhume
from exhume.attacks.silent.grams import WIDE, solve_positive, weighted_grams
from exhume.attacks.silent.likelihood import likeliest, minus_log_likelihood
from exhume.attacks.silent.search import Found, nothing_found
from exhume.attacks.silent.separation import separated, sparseness, unmixed
from exhume.layer_states import changed
from exhume.metrics.errors import relative_errors
from exhume.networks.head import with_bias
from exhume.picture_layouts import KERNELS, Layout, edges, layout_of
from silent_victims import span_of


def faces(n: int) -> torch.Tensor:
    return torch.tensor(lfw_subset(), dtype=torch.float64)[:n].flatten(1)


def mixed(rows: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Other rows with the same span."""
    return torch.randn(len(rows), len(rows), generator=torch.Generator().manual_seed(seed)).to(rows) @ rows


@pytest.mark.parametrize("last", [False, True])
def test_the_layout_of_pictures_is_told_from_mixtures_of_them(last: bool) -> None:
    grey = faces(12).reshape(12, 25, 25)[:, :24, :]
    colours = torch.stack([grey, grey.flip(0), 0.5 * grey + 0.5 * grey.roll(1, 0)], dim=3 if last else 1)
    assert layout_of(mixed(colours.flatten(1))) == Layout(3, 24, 25, last)
    assert layout_of(mixed(faces(12))) == Layout(1, 25, 25)


def test_a_table_and_shuffled_pixels_have_no_layout() -> None:
    stream = torch.Generator().manual_seed(1)
    assert layout_of(torch.randn(20, 144, generator=stream)) is None
    assert layout_of(faces(12)[:, torch.randperm(625, generator=stream)]) is None
    assert layout_of(torch.randn(5, 7, generator=stream)) is None


def test_edges_are_second_differences_of_one_size() -> None:
    """Beside a naive twin, with one channel: whitening is then a scale per kernel."""
    rows = faces(3)
    found = edges(Layout(1, 25, 25), rows)
    assert found.shape == (3, len(KERNELS), 23 * 23)
    picture = rows[1].reshape(25, 25)
    naive = torch.stack(
        [picture[y, x - 1] - 2 * picture[y, x] + picture[y, x + 1] for y in range(1, 24) for x in range(1, 24)]
    )
    across = found[1, 0]
    assert torch.allclose(across / across.norm(), naive / naive.norm(), atol=1e-10)
    assert torch.allclose(found.square().mean(dim=(0, 2)), torch.ones(len(KERNELS), dtype=torch.float64))


def test_mixtures_of_faces_come_apart() -> None:
    rows = faces(10)
    basis = mixed(rows)
    parts = separated(edges(Layout(1, 25, 25), basis), torch.Generator().manual_seed(0)) @ basis
    cosines = torch.nn.functional.normalize(rows, dim=1) @ torch.nn.functional.normalize(parts, dim=1).T
    one_each = cosines.abs().argmax(dim=1)
    assert len(set(one_each.tolist())) == 10
    own = (parts @ torch.linalg.pinv(rows)).abs()
    own = own / own.amax(dim=1, keepdim=True)
    assert float((own.square().sum(dim=1) - 1).sqrt().median()) < 0.3  # of a mixture it is 2 and more


def test_faces_that_hold_a_share_of_others_come_out_of_it() -> None:
    rows = faces(10)
    known, others = rows[:6], rows[6:]
    stream = torch.Generator().manual_seed(1)
    held = known + torch.randn(6, 4, generator=stream, dtype=torch.float64) @ others
    seen = edges(Layout(1, 25, 25), torch.cat([held, others]))
    found = held + unmixed(seen[:6], seen[6:]) @ others
    before, after = (torch.nn.functional.cosine_similarity(known, rows, dim=1) for rows in (held, found))
    assert float(before.min()) < 0.9
    assert float(after.min()) > 0.97


def test_sparseness_does_not_see_scales() -> None:
    values = torch.randn(4, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, size = sparseness(values, 3)
    second, other = sparseness(7 * values, 3)
    assert torch.allclose(first, second)
    assert torch.allclose(7 * size, other)


@pytest.mark.parametrize("columns", [5, WIDE + 3])
def test_grams_and_their_systems_agree_with_the_plain_ones(columns: int) -> None:
    stream = torch.Generator().manual_seed(2)
    rows = torch.randn(3 * columns, columns, generator=stream, dtype=torch.float64)
    weights = 0.1 + torch.rand(4, len(rows), generator=stream, dtype=torch.float64)
    weights[:, ::5] = 0.0  # left out start by start where there are many columns
    sides = torch.randn(4, columns, generator=stream, dtype=torch.float64)
    grams = weighted_grams(rows, weights)
    for index in range(4):
        plain = rows.T @ torch.diag(weights[index]) @ rows
        assert torch.allclose(grams[index], plain)
        solved = solve_positive(grams.clone(), sides, 0.0)[index]
        assert torch.allclose(solved, torch.linalg.solve(plain, sides[index]))


def test_a_singular_system_is_damped_and_one_that_is_not_finite_is_no_fault() -> None:
    singular = torch.ones(1, 3, 3)
    assert bool(torch.isfinite(solve_positive(singular, torch.ones(1, 3), 0.0)).all())
    assert bool(torch.isfinite(solve_positive(torch.full((1, 3, 3), torch.nan), torch.ones(1, 3), 0.0)).all())


def test_the_truth_is_likelier_than_what_is_near_it_and_settled_duals_stay() -> None:
    span, _, duals = span_of()
    stream = torch.Generator().manual_seed(3)
    flat = torch.distributions.Laplace(0.0, 1.0)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        sparse = flat.sample((span.r, 4 * 200)).double()
    seen = (duals.T @ sparse).reshape(span.r, 4, 200)  # edges whose components at the true places are sparse
    noise = 0.02 * torch.randn(span.r, span.r, generator=stream).double()
    near = duals + noise * duals.norm() / span.r**0.5
    true_value = minus_log_likelihood(span, duals.T, seen, 0.01)
    assert float(true_value) < float(minus_log_likelihood(span, near.T, seen, 0.01))
    settled = torch.arange(span.r) < 3
    begun = torch.where(settled[:, None], duals, near / near.norm(dim=1, keepdim=True))
    ended = likeliest(span, begun, seen, settled, widest=0.1)
    assert torch.allclose(ended[:3], duals[:3], atol=1e-12)
    cosines = (ended * duals).sum(dim=1).abs()
    assert float(cosines.min()) > float((begun * duals).sum(dim=1).abs()[3:].min())
    assert float(cosines[3:].median()) > 1 - 1e-4


def test_a_likely_set_fills_what_is_not_found() -> None:
    span, _, duals = span_of()
    shuffled = duals.flip(0)
    found = Found(duals[:4], shuffled)
    candidates = found.candidates()
    assert len(candidates) == span.r
    assert torch.equal(candidates[:4], duals[:4])
    assert float((candidates @ duals.T).abs().amax(dim=0).min()) > 1 - 1e-12
    assert len(nothing_found(span).candidates()) == 0


@dataclass(frozen=True, eq=False)
class Victim:
    model: torch.nn.Sequential
    started: dict[str, torch.Tensor]
    before: torch.Tensor
    after: torch.Tensor
    rows: torch.Tensor


def of_faces(n: int, h: int, activation: torch.nn.Module, bias: bool = True) -> Victim:
    rows = faces(n).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = torch.nn.Linear(625, h, bias=bias)
        model = torch.nn.Sequential(first, activation, torch.nn.Linear(h, 2))
        started = copy.deepcopy(model.state_dict())
        before = with_bias(first.weight, first.bias).clone()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        for _ in range(60):
            chosen = torch.randperm(n)[: max(1, n // 3)]
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(rows[chosen]), chosen % 2).backward()
            optimiser.step()
    return Victim(model, started, before, with_bias(first.weight, first.bias), rows)


def test_faces_come_out_of_a_layer_without_silent_units() -> None:
    """Tanh passes gradients everywhere: only the span is known, and edges tell faces apart. Nothing confirms them."""
    victim = of_faces(12, 100, torch.nn.Tanh())
    states = changed(victim.before, victim.after, bias=True, leak=1.0)
    found = exhume.reconstruct(exhume.observe_layer(states))
    assert found.facts["rank"] == 12
    assert found.facts["pictures"] == 12
    assert found.held_out_loss is None
    assert max(found.certificate.confidence) < 0.5
    errors = relative_errors(victim.rows.double(), found.inputs.double())
    assert float(errors.median()) < 0.2
    between = torch.cdist(victim.rows, victim.rows) / victim.rows.norm(dim=1)
    nearest_other = (between + 9 * torch.eye(12)).amin(dim=1)
    assert float((errors < nearest_other).float().mean()) > 0.8  # closer than any other face


def test_an_audit_shows_the_pictures_and_says_that_nothing_confirms_them() -> None:
    victim = of_faces(12, 100, torch.nn.Tanh())
    alone = exhume.audit(victim.model, initial=victim.started, budget_seconds=6)
    assert alone.subject.found is not None
    assert alone.subject.found.method == "silent-units"
    assert alone.sentence == (
        "Inconclusive: whether training data can be read from these weights is not settled. "
        "12 pictures came out of the weights, told apart by their edges, and nothing confirms them. "
        "Look at them."
    )
    assert {"known": True, "what": "A prior on the data (pictures have few edges)"} in alone.content(False)["knowledge"]
    held = exhume.audit(victim.model, initial=victim.started, truth=victim.rows, budget_seconds=6)
    assert held.summary["recovered"] >= 6
    assert "confirm no sample" not in held.said["advice"]


def test_without_a_bias_silence_tells_the_sign_of_a_picture() -> None:
    victim = of_faces(12, 400, torch.nn.ReLU(), bias=False)
    found = exhume.reconstruct(exhume.observe_layer(changed(victim.before, victim.after, bias=False)))
    shown = torch.nn.functional.normalize(found.inputs.double(), dim=1)
    cosines = torch.nn.functional.normalize(victim.rows.double(), dim=1) @ shown.T
    own = cosines.gather(1, cosines.abs().argmax(dim=1, keepdim=True))
    assert float((own > 0).double().mean()) > 0.9


@pytest.mark.parametrize("bias", [True, False])
def test_one_sample_alone_is_shown(bias: bool) -> None:
    """There is nothing to tell it from, and no silent unit has changed that could confirm it."""
    victim = of_faces(1, 60, torch.nn.ReLU(), bias=bias)
    found = exhume.reconstruct(exhume.observe_layer(changed(victim.before, victim.after, bias=bias)))
    assert found.inputs.shape == (1, 625)
    cosine = torch.nn.functional.cosine_similarity(victim.rows, found.inputs.float())
    assert float(cosine.abs()) > 0.999
