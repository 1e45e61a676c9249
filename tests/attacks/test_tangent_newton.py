"""The attacks on all layers, each on a network where its assumptions hold."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.certificate import split_places
from exhume.attacks.modules.coordinates import SpanCoordinates
from exhume.attacks.running.agreement import agree
from exhume.attacks.running.loop import Attacked, Progress, run_attack
from exhume.attacks.tangent.case import TangentProblem
from exhume.attacks.tangent.newton import KktAttack, NtkAttack
from exhume.attacks.tangent.span import TangentSpanLoss
from exhume.attacks.tangent.view import row_space
from exhume.errors import UsageError
from exhume.features.layered import LayeredNetwork
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.metrics.errors import reconstruction_error
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Outcome

D, N, H = 12, 3, 200
QUICK: dict[str, Any] = {"starts": 1, "regrowths": 0, "stage_iterations": 30, "ladder": (3.0, 50.0)}
MANY = 5
CLASSIFIER: dict[str, Any] = {"scale": 1e-3, "classes": MANY, "n": MANY}


def samples(n: int = N, d: int = D, seed: int = 0) -> Tensor:
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(100 + seed), dtype=torch.float64)
    return rows * (d**0.5 / rows.norm(dim=1, keepdim=True))


@cache
def trained(name: str = "relu", scale: float = 1.0, classes: int = 1, n: int = N) -> Observation:
    """A two-layer network, trained here by plain gradient descent: on real labels, or to a large margin on classes."""
    stream, inputs = torch.Generator().manual_seed(7), samples(n)
    first = scale * torch.randn(H, D, generator=stream, dtype=torch.float64) / D**0.5
    head = torch.randn(classes, H, generator=stream, dtype=torch.float64) / H**0.5
    labels = torch.randn(n, 1, generator=stream, dtype=torch.float64)
    wanted = torch.arange(n) % classes
    phi, weights = activation(name), [first.clone(), head.clone()]
    for _ in range(400):
        reached = inputs @ weights[0].T
        outputs = phi.value(reached) @ weights[1].T
        errors = outputs - labels
        if classes > 1:
            errors = torch.softmax(outputs, dim=1) - torch.nn.functional.one_hot(wanted, classes)
            errors = errors / errors.norm()  # normalised descent: to a large margin in few steps
        of_first = ((errors @ weights[1]) * phi.derivative(reached)).T @ inputs
        of_head = errors.T @ phi.value(reached)
        step = 1e-2 if classes > 1 else 2e-3
        weights[0] -= step * of_first
        weights[1] -= step * of_head
    return Observation(
        RidgeFeatures(HeldRows(weights[0]), phi, trained=True),
        weights[1] - head,
        Knowledge(n, D**0.5, "known"),
        head=weights[1],
        initial_rows=HeldRows(first),
    )


def attack(observation: Observation, method: NtkAttack | KktAttack, seed: int = 0) -> Attacked:
    return run_attack(observation.knowing(None), method, seed=seed)


def test_the_change_of_all_weights_gives_the_samples_away() -> None:
    """n is not told: it is the rank of the first layer's change."""
    found = attack(trained(), NtkAttack(**QUICK)).reconstruction
    assert found.candidates.shape == (N, D)
    assert found.facts["subspace_rank"] == N
    assert reconstruction_error(samples(), found.candidates) < 0.05
    assert found.held_out_loss is not None
    assert found.held_out_loss < 0.05


def test_a_smooth_network_has_no_ladder_to_climb() -> None:
    steps: list[Progress] = []
    found = run_attack(trained("gelu").knowing(None), NtkAttack(**QUICK), watch=steps.append).reconstruction
    assert reconstruction_error(samples(), found.candidates) < 0.02
    assert max(step.step.notes["unit"] for step in steps) <= 3, "one start, prune and polish"


def test_a_subspace_that_is_given_is_searched_instead_of_the_one_that_is_shown() -> None:
    """It may be larger than the span of the samples; n is the rank of the first layer's change as before."""
    more = torch.randn(2, D, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    basis = torch.linalg.qr(torch.cat([samples().double(), more]).T).Q
    seen = replace(trained("gelu"), subspace=basis)
    found = attack(seen, NtkAttack(**QUICK)).reconstruction
    assert found.facts["subspace_rank"] == N + 2
    assert len(found.candidates) == N
    assert reconstruction_error(samples(), found.candidates) < 0.02
    outside = replace(seen, subspace=torch.linalg.qr(more.T).Q)
    elsewhere = attack(outside, NtkAttack(iterations=50)).reconstruction
    assert reconstruction_error(samples(), elsewhere.candidates) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("back", [0.0, 1.0])
def test_gradients_at_one_end_of_training_do_as_well_where_weights_hardly_moved(back: float) -> None:
    found = attack(trained("gelu"), NtkAttack(back=back, **QUICK)).reconstruction
    assert reconstruction_error(samples(), found.candidates) < 0.1


@pytest.mark.slow
def test_the_whole_space_is_searched_where_the_span_is_not_to_be_used() -> None:
    found = attack(trained("gelu"), NtkAttack(span=False, **QUICK)).reconstruction
    assert reconstruction_error(samples(), found.candidates) < 0.1


def nearest(wanted: Tensor, candidates: Tensor) -> Tensor:
    units = [rows / rows.norm(dim=1, keepdim=True) for rows in (wanted, candidates.double())]
    return (units[0] @ units[1].T).abs().max(dim=1).values


def test_a_classifier_that_started_small_gives_its_samples_away() -> None:
    """No initial weight is known, nor the labels or their number."""
    seen = trained(**CLASSIFIER)
    assert seen.head is not None
    unknown = replace(seen, initial_rows=None, weights=seen.head, head=None, knowledge=Knowledge(None, D**0.5))
    found = attack(unknown, KktAttack(**QUICK)).reconstruction
    assert found.facts["subspace_rank"] == MANY
    assert int((nearest(samples(MANY), found.candidates) > 0.9).sum()) >= 3
    assert found.outcome is Outcome.NOT_CONVERGED, "rows that are copies of each other prove nothing"
    assert not any(found.certificate.confidence)


def test_weights_of_margins_are_found_by_the_rule_of_margins() -> None:
    """A first layer that is exactly what the conditions say: each sample's own class against the others."""
    stream, wanted = torch.Generator().manual_seed(1), samples(MANY)
    weights = (
        torch.randn(H, D, generator=stream, dtype=torch.float64),
        torch.randn(MANY, H, generator=stream, dtype=torch.float64),
    )
    net = LayeredNetwork.measured(weights, activation("relu"), norm=D**0.5)
    against = torch.rand(MANY, MANY, generator=stream, dtype=torch.float64).fill_diagonal_(0)
    target = net.gradients(wanted).combined(against.sum(dim=1).diag() - against, None).T @ wanted
    loss = TangentSpanLoss(net, (target, None), rule="margin")
    coordinates = SpanCoordinates.plain(D**0.5, D, target)
    problem = TangentProblem(loss, coordinates, MANY, seed=1, steering_loss=lambda _: None)
    method = KktAttack(rule="margin", starts=1, stage_iterations=40, ladder=(3.0, 50.0))
    last = list(method.steps(problem))[-1]
    assert len(last.candidates) == 7, "places stand for classes, so none is pruned"
    assert int((nearest(wanted, last.candidates) > 0.95).sum()) >= 3


@pytest.mark.slow
def test_what_runs_agree_on_is_right_more_often() -> None:
    runs = [attack(trained(**CLASSIFIER), KktAttack(**QUICK), seed).reconstruction.candidates for seed in range(4)]
    clusters = agree(runs)
    right = [float(nearest(cluster.mean[None], samples(MANY))[0]) > 0.9 for cluster in clusters]
    assert all(right[:3]), "those that most runs agree on"
    assert sum(right[:3]) / 3 > sum(right[3:]) / len(right[3:]), "those that few came up with"


def test_an_attack_that_was_stopped_goes_on_from_its_last_unit() -> None:
    problem: list[TangentProblem] = []

    class Keeping(NtkAttack):
        def steps(self, given: TangentProblem, resume: Any = None) -> Any:
            problem.append(given)
            return super().steps(given, resume)

    short = {**QUICK, "stage_iterations": 5}
    attack(trained("gelu"), Keeping(**short))
    whole = list(NtkAttack(**short).steps(problem[0]))
    rest = list(NtkAttack(**short).steps(problem[0], whole[-3].state))
    assert torch.equal(rest[-1].candidates, whole[-1].candidates)
    done = list(NtkAttack(**short).steps(problem[0], whole[-1].state))
    assert len(done) == 1
    assert torch.equal(done[0].candidates, whole[-1].candidates)


def test_rows_are_split_without_overlap() -> None:
    split = split_places(100, 0.1, 0)
    assert (len(split.used), len(split.steering), len(split.held_out)) == (90, 5, 5)
    assert sorted(torch.cat([split.used, split.steering, split.held_out]).tolist()) == list(range(100))
    assert len(split_places(2, 0.5, 0).held_out) == 0
    with pytest.raises(UsageError, match="held-out fraction"):
        split_places(10, 1.0, 0)


def test_the_row_space_is_above_the_last_gap() -> None:
    noisy = torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) @ samples(3)
    space = row_space(noisy + 1e-6 * samples(30))
    assert space is not None
    assert space.r == 3
    assert row_space(samples(30)) is None


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ({"initial_rows": None}, "none of the first layer"),
        ({"head": None}, "the trained head"),
        ({"knowledge": Knowledge(N, D**0.5, "distribution")}, "none of the head"),
    ],
)
def test_what_is_missing_is_said(missing: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        attack(replace(trained("gelu"), **missing), NtkAttack(**QUICK))


def test_a_first_layer_that_was_not_trained_tells_these_attacks_nothing() -> None:
    seen = trained("gelu")
    drawn = replace(seen, features=replace(seen.ridge, trained=False))
    for method in (NtkAttack(**QUICK), KktAttack(**QUICK)):
        with pytest.raises(UsageError, match=r"expected a first layer that was trained, found gelu\(Vx\)"):
            attack(drawn, method)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"starts": 0}, "1 start"),
        ({"excess": 0.5}, "as many candidates"),
        ({"redrawn": 1.0}, "draw anew"),
        ({"ladder": ()}, "positive sharpness"),
    ],
)
def test_impossible_settings_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        KktAttack(**fields)
