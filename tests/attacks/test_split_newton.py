import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.foundation.state import Step
from exhume.attacks.running.loop import Attacked, Limits, Progress, run_attack
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.problem import Problem
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.split_newton import POLISH, SplitNewton, _SplitSearch
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold
from exhume.metrics.errors import reconstruction_error, signed_error
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Outcome, Reconstruction
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

D, N = 30, 5
GUARD = Limits()  # all end by themselves
SPLIT_STEPS = SplitNewton(dense_dim=1)
SMALL_D, SMALL_N = 12, 3


@pytest.fixture(autouse=True)
def shapes_checked_in_some_tests_only(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checking every call makes an attack six times slower: a few tests that run through all code are enough."""
    checked = ("test_several_outputs_share_their_samples", "test_hardly_any_weights_are_an_attack_that_ends")
    jaxtyping.config.update("jaxtyping_disable", request.node.originalname not in checked)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def victim(
    name: str = "relu", p: int = 4 * D * N, bias: float = 0.0, dtype: str = "float32"
) -> tuple[Observation, Tensor]:
    """Trained on the sphere; the attacker is not told how many samples there are."""
    data = load(DataConfig.parse(name="sphere", samples=N, dim=D, seed=0, dtype=dtype))
    config = RandomFeaturesConfig(params=p, seed=0, activation=name, bias=bias)
    return train_random_features(config, data, draw_rows(config, D)).observation.knowing(None), data.inputs


def attack(observation: Observation, method: SplitNewton | None = None, seed: int = 0) -> Reconstruction:
    return run_attack(observation, method or SplitNewton(), seed=seed, limits=GUARD).reconstruction


def assert_found(found: Reconstruction, samples: Tensor, signs: bool = True) -> None:
    assert len(found.candidates) == len(samples)
    error = signed_error if signs else reconstruction_error
    assert error(samples, found.candidates.to(samples)) < 1e-3


def assert_recovered(found: Reconstruction, samples: Tensor, signs: bool = True) -> None:
    assert_found(found, samples, signs)
    assert found.outcome is Outcome.RECOVERED
    assert min(found.certificate.confidence) > 0.9


@pytest.mark.parametrize("name", ["relu", "tanh", "relu+tanh", "gelu", "softplus", "erf"])
def test_samples_and_their_number_are_found(name: str) -> None:
    observation, samples = victim(name)
    assert_recovered(attack(observation), samples, signs=name not in ("tanh", "erf"))


@pytest.mark.parametrize("name", ["relu", "erf", "gelu"])
def test_samples_and_their_number_are_found_by_split_steps(name: str) -> None:
    observation, samples = victim(name, p=8 * D * N)
    found = attack(observation, SPLIT_STEPS)
    assert_recovered(found, samples, signs=name not in ("tanh", "erf"))
    assert found.passes < 4 * found.iterations, "two passes per step, and some for the stages"


@pytest.mark.parametrize(("name", "method"), [("relu", SplitNewton()), ("tanh", SplitNewton()), ("relu", SPLIT_STEPS)])
def test_with_a_bias_signs_are_found_as_well(name: str, method: SplitNewton) -> None:
    observation, samples = victim(name, p=8 * D * N, bias=0.5)
    assert_recovered(attack(observation, method), samples)


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_a_sample_and_its_negative_are_both_found(name: str) -> None:
    """The affine part of the search makes one of them needless; the weights without it do not."""
    drawn = torch.randn(3, 20, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    samples = to_norm(torch.cat([drawn, -drawn[:1]]), math.sqrt(20)).float()
    features = RidgeFeatures(hold(DrawnRows(3, 800, 20)), activation(name))
    weights = torch.tensor([[1.0, -0.7, 0.5, 0.6]]) @ features(samples)
    found = attack(Observation(features, weights, Knowledge(norm=math.sqrt(20))))
    assert_found(found, samples)
    assert found.trusted >= 2, "the two without a negative"


def four_samples(seed: int, p: int, name: str = "relu") -> tuple[Observation, Tensor]:
    data = load(DataConfig.parse(name="sphere", samples=4, dim=20, seed=seed))
    config = RandomFeaturesConfig(params=p, seed=seed, activation=name)
    return train_random_features(config, data, draw_rows(config, 20)).observation.knowing(None), data.inputs


def test_what_only_the_last_refinement_explains_is_pruned_after_it() -> None:
    """With the affine part, five candidates explain little and none can be spared; without it, two share a sample."""
    observation, samples = four_samples(5000, p=160)
    found = attack(observation, seed=5000)
    assert_found(found, samples)
    assert found.trusted >= 3, "at p = 2dn a blend cannot be ruled out for each"


def test_candidates_that_surround_a_sample_are_merged() -> None:
    """Two weak ones beside a strong one make up for its derivatives, and neither can be spared alone."""
    observation, samples = four_samples(8000, p=240, name="softplus")
    assert_recovered(attack(observation, seed=8000), samples)


def test_the_last_refinement_is_patient_close_to_the_counting_limit() -> None:
    """The loss hardly falls for the first steps, until the damping has."""
    observation, samples = four_samples(8001, p=100, name="softplus")
    assert_recovered(attack(observation, seed=8001), samples)


@pytest.mark.parametrize("method", [SplitNewton(), SPLIT_STEPS], ids=["dense", "split"])
def test_a_number_that_is_told_is_the_number_that_is_found(method: SplitNewton) -> None:
    observation, samples = victim(p=8 * D * N)
    assert_recovered(attack(observation.knowing(N), method), samples)


@pytest.mark.parametrize("seed", [1, 5, 7])
def test_two_samples_are_found_when_told_that_there_are_two(seed: int) -> None:
    """Without candidates to spare both share a sample, and then one of them looks needless."""
    stream = torch.Generator().manual_seed(seed)
    bound = 6**-0.5  # as torch's linear layers begin
    rows, bias = (bound * (2 * torch.rand(90, d, generator=stream) - 1) for d in (6, 1))
    samples = to_norm(torch.randn(2, 6, generator=stream), 6**0.5)
    features = RidgeFeatures(HeldRows(rows), activation("gelu"), bias[:, 0])
    weights = interpolating(features(samples), torch.tensor([1.0, -1.0]))
    assert_recovered(attack(Observation(features, weights, Knowledge(2, 6**0.5))), samples)


def interpolating(features: Tensor, labels: Tensor) -> Tensor:
    """The weights of least norm that predict the labels."""
    return torch.linalg.lstsq(features.double(), labels.double(), driver="gelsd").solution[None].float()


def planted(name: str, rows: Tensor, n: int = N, k: int = 1) -> tuple[Observation, Tensor]:
    """Random combinations of the features of random samples, for any V."""
    d = rows.shape[1]
    stream = torch.Generator().manual_seed(2)
    samples = to_norm(torch.randn(n, d, generator=stream), d**0.5)
    coefficients = torch.randn(k, n, generator=stream, dtype=torch.float64)
    coefficients += 0.4 * coefficients.sign()
    features = RidgeFeatures(HeldRows(rows), activation(name))
    weights = (coefficients @ features(samples).double()).float()
    return Observation(features, weights, Knowledge(None, d**0.5)), samples


def rows_of(p: int, d: int = D) -> Tensor:
    return hold(DrawnRows(1, p, d)).values


@pytest.mark.parametrize(("name", "method"), [("relu", SplitNewton()), ("tanh", SplitNewton()), ("relu", SPLIT_STEPS)])
def test_several_outputs_share_their_samples(name: str, method: SplitNewton) -> None:
    observation, samples = planted(name, rows_of(600), k=2)
    found = attack(observation, method)
    assert_recovered(found, samples, signs=name == "relu")
    assert found.coefficients.shape == (N, 2)


def test_no_more_rows_are_used_than_the_candidates_need() -> None:
    observation, samples = victim(p=200 * D * N)
    found = attack(observation)
    assert_recovered(found, samples)
    assert found.passes < 60, "hundreds of sweeps, each over a tenth of the rows"
    few = attack(victim()[0])
    assert few.passes > 5 * found.passes


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_the_weights_changes_nothing_but_the_coefficients(scale: float) -> None:
    observation, samples = planted("relu", rows_of(300, SMALL_D), SMALL_N)
    plain, scaled = attack(observation), attack(replace(observation, weights=observation.weights * scale))
    assert_recovered(scaled, samples)
    assert len(scaled.candidates) == len(plain.candidates)
    assert signed_error(plain.candidates, scaled.candidates) < 1e-5
    assert float(scaled.coefficients.norm() / plain.coefficients.norm()) == pytest.approx(scale, rel=1e-4)


def test_in_double_precision_the_loss_falls_to_rounding() -> None:
    observation, samples = victim(dtype="float64")
    found = attack(observation, SplitNewton(exact=True))
    assert found.candidates.dtype == torch.float64
    assert found.loss < 1e-24
    assert signed_error(samples, found.candidates) < 1e-10
    assert attack(observation).loss > 1e-20, "single precision ends earlier"


@pytest.mark.parametrize("method", [SplitNewton(), SPLIT_STEPS], ids=["dense", "split"])
def test_products_in_bfloat16_end_where_single_precision_does(method: SplitNewton) -> None:
    observation, samples = planted("relu", rows_of(400, SMALL_D), SMALL_N)
    found = run_attack(observation, method, products=torch.bfloat16, limits=GUARD).reconstruction
    assert_recovered(found, samples)
    assert found.settings["products"] == "bfloat16"


@pytest.mark.parametrize("method", [SplitNewton(), SPLIT_STEPS], ids=["dense", "split"])
def test_products_in_bfloat16_are_for_the_search_and_not_for_its_end(
    method: SplitNewton, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation, _ = planted("relu", rows_of(400, SMALL_D), SMALL_N)
    read: list[torch.dtype] = []
    block = HeldRows.block

    def spied(rows: HeldRows, start: int, stop: int) -> Tensor:
        read.append(rows.values.dtype)
        return block(rows, start, stop)

    monkeypatch.setattr(HeldRows, "block", spied)
    run_attack(observation, method, products=torch.bfloat16, limits=GUARD)
    last_coarse = len(read) - read[::-1].index(torch.bfloat16)
    assert read.count(torch.bfloat16) > 20
    assert torch.float32 in read[last_coarse:], "the end is refined"


def test_features_that_come_in_bfloat16_are_taken_at_their_value() -> None:
    rows = rows_of(400, SMALL_D).bfloat16()
    exact, samples = planted("relu", rows.float(), SMALL_N)
    assert_recovered(attack(replace(exact, features=replace(exact.ridge, rows=HeldRows(rows)))), samples)


@pytest.mark.parametrize("method", [SplitNewton(), SPLIT_STEPS], ids=["dense", "split"])
def test_more_samples_than_dimensions_are_found(method: SplitNewton) -> None:
    d, n = 6, 9
    observation, samples = planted("relu", rows_of(20 * d * n, d), n)
    assert_recovered(attack(observation, method), samples)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_attacked_down_to_their_rounding_and_no_further(dtype: torch.dtype) -> None:
    observation, samples = planted("relu", rows_of(400, SMALL_D), SMALL_N)
    rounded = replace(observation, weights=observation.weights.to(dtype).float())
    found = attack(rounded)
    assert found.outcome is Outcome.RECOVERED
    assert len(found.candidates) == SMALL_N
    assert 1e-5 < signed_error(samples, found.candidates) < 2e-2
    assert found.iterations < 3 * attack(observation).iterations, "it does not search in noise"


def test_the_same_seed_gives_the_same_bits() -> None:
    observation, _ = planted("gelu", rows_of(300, SMALL_D), SMALL_N)
    one, same = attack(observation, seed=3), attack(observation, seed=3)
    assert torch.equal(one.candidates, same.candidates)
    assert torch.equal(one.coefficients, same.coefficients)
    assert (one.iterations, one.passes, one.loss) == (same.iterations, same.passes, same.loss)
    random_starts = [attack(observation, SPLIT_STEPS, seed=seed).candidates for seed in (4, 5)]
    assert not torch.equal(*random_starts)


def small_problem(name: str, p: int = 160) -> Problem:
    d, n = 8, 3
    stream = torch.Generator().manual_seed(2)
    samples = to_norm(torch.randn(n, d, generator=stream), d**0.5)
    features = RidgeFeatures(hold(DrawnRows(1, p, d)), activation(name))
    coefficients = torch.tensor([[1.0, -0.8, 0.6]])
    loss = SpanLoss(features, coefficients @ features(samples))
    return Problem(
        loss=loss,
        coarse=loss,
        norm=d**0.5,
        samples=None,
        seed=0,
        steering_loss=lambda candidates, coefficients=None: loss.to(candidates.dtype).fit(candidates).loss,
        rounding=0.0,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


Line = tuple[int, float, float]


def run(problem: Problem, method: SplitNewton, resume: Step | None = None) -> tuple[list[Step], list[Line]]:
    steps, lines = [], []
    for step in method.steps(problem, resume.state if resume else None):
        steps.append(step)
        lines.append((step.iteration, step.loss, problem.loss.passes))
    return steps, lines


@pytest.mark.parametrize(
    ("name", "p", "method"),
    [
        ("relu", 160, SplitNewton()),
        ("tanh", 160, SplitNewton()),
        ("relu", 50, SplitNewton(rounds=1)),  # stuck: it regrows
        ("relu", 160, SPLIT_STEPS),
        ("relu+tanh", 160, SplitNewton(exact=True)),
    ],
)
def test_going_on_from_any_saved_state_gives_the_same_bits_and_the_same_passes(
    name: str, p: int, method: SplitNewton
) -> None:
    steps, lines = run(small_problem(name, p), method)
    boundaries = list({id(step.state): step for step in steps}.values())
    assert len(boundaries) >= 3
    for step in boundaries[:: -(-len(boundaries) // 3)]:
        resumed, again = run(small_problem(name, p), method, step)
        assert torch.equal(resumed[-1].candidates, steps[-1].candidates)
        assert resumed[-1].candidates.dtype == steps[-1].candidates.dtype
        rest = [line for line in lines if line[0] > step.state.numbers["iteration"]]
        assert [line for line in again if line[0] > step.state.numbers["iteration"]] == rest


def with_a_small_sample(d: int, n: int, ratio: int, size: float) -> tuple[Problem, Tensor, Tensor]:
    """A problem in which one sample has a small coefficient, the samples, and these with the sign of that one wrong."""
    small = 3
    stream = torch.Generator().manual_seed(2)
    samples = to_norm(torch.randn(n, d, generator=stream), d**0.5)
    coefficients = torch.randn(1, n, generator=stream)
    coefficients += 0.3 * coefficients.sign()
    coefficients[0, small] = size
    features = RidgeFeatures(hold(DrawnRows(1, ratio * d * n, d)), activation("relu"))
    loss = SpanLoss(features, coefficients @ features(samples))
    wrong = samples.clone()
    wrong[small] *= -1
    problem = replace(small_problem("relu"), loss=loss, coarse=loss, norm=d**0.5, steering_loss=lambda *_: None)
    return problem, samples, wrong


def test_a_small_sample_with_the_wrong_sign_is_turned_though_others_make_up_for_it() -> None:
    problem, samples, wrong = with_a_small_sample(d=100, n=20, ratio=5, size=1 / 75)
    steps, _ = run(replace(problem, start=wrong), SPLIT_STEPS)
    assert max(step.notes["candidates"] for step in steps) == 20, "nothing is added for it"
    assert max(signed_error(samples, step.candidates) for step in steps) > 0.05, "it had the wrong sign"
    assert signed_error(samples, steps[-1].candidates) < 1e-4


def test_a_wrong_sign_that_the_search_left_is_turned_by_the_last_phase() -> None:
    """The search ends with a wrong sign that the others have made up for; what polishes goes on from there."""
    problem, samples, wrong = with_a_small_sample(d=60, n=10, ratio=3, size=0.15)
    loss = problem.loss
    rule = Levenberg(0, forcing=0.01, damping_floor=1e-8)
    *_, stuck = rule.refine(loss, loss.fit(wrong), problem.norm, iterations=40)
    assert signed_error(samples, stuck.candidates) > 0.15
    planted = replace(problem, start=stuck.candidates, samples=10)
    search = _SplitSearch(SPLIT_STEPS, planted, None)
    search.phase = POLISH
    *_, last = search.run()
    assert signed_error(samples, last.candidates) < 1e-4


def without_clock(attacked: Attacked) -> list[dict[str, float]]:
    return [{name: value for name, value in line.items() if name != "seconds"} for line in attacked.trace]


def interrupt_at(iteration: int) -> Callable[[Progress], None]:
    def watch(progress: Progress) -> None:
        if progress.step.iteration == iteration:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


@pytest.mark.parametrize("method", [SplitNewton(), SPLIT_STEPS], ids=["dense", "split"])
def test_an_interrupted_attack_goes_on_from_its_file_to_the_same_bits(tmp_path: Path, method: SplitNewton) -> None:
    observation, samples = victim()
    undisturbed = run_attack(observation, method)
    checkpoint = tmp_path / "checkpoint"
    for stop in (17, undisturbed.reconstruction.iterations):
        stopped = run_attack(observation, method, watch=interrupt_at(stop), checkpoint=checkpoint)
        assert stopped.interrupted
        assert torch.isfinite(stopped.reconstruction.candidates).all()
    resumed = run_attack(observation, method, checkpoint=checkpoint)
    assert torch.equal(resumed.reconstruction.candidates, undisturbed.reconstruction.candidates)
    assert resumed.reconstruction.passes == undisturbed.reconstruction.passes
    assert resumed.reconstruction.certificate == undisturbed.reconstruction.certificate
    assert without_clock(resumed) == without_clock(undisturbed)
    assert_recovered(resumed.reconstruction, samples)


def test_a_search_that_is_stopped_shows_signs_repaired() -> None:
    observation, samples = victim()
    iterations = attack(observation).iterations
    stopped = run_attack(observation, SplitNewton(), watch=interrupt_at(iterations - 4)).reconstruction
    assert signed_error(samples, stopped.candidates) < 1e-2


def test_it_counts_iterations_and_stops_at_their_limit() -> None:
    attacked = run_attack(victim()[0], SplitNewton(iterations=12))
    assert attacked.reconstruction.iterations == 12
    assert [line["iteration"] for line in attacked.trace] == list(range(1, 13))
    with pytest.raises(UsageError, match="at least 1 iteration"):
        SplitNewton(iterations=0)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# not patient: what is tried here must end, whatever it finds
METHODS = [
    pytest.param(SplitNewton(rounds=1, iterations=80), id="dense"),
    pytest.param(replace(SPLIT_STEPS, rounds=1, iterations=80), id="split"),
]


def assert_sound(observation: Observation, method: SplitNewton) -> Reconstruction:
    began = time.monotonic()
    found = run_attack(observation, method, limits=GUARD).reconstruction
    assert time.monotonic() - began < 20
    assert torch.isfinite(found.candidates).all()
    assert torch.isfinite(found.coefficients).all()
    assert 0 <= found.loss < float("inf")
    assert all(0 <= value <= 1 for value in found.certificate.confidence)
    norms = torch.full((len(found.candidates),), observation.d**0.5)
    torch.testing.assert_close(found.candidates.norm(dim=1), norms)
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "p", "told"), [("relu", 30, None), ("tanh", 20, None), ("relu", 20, SMALL_N)])
def test_below_the_counting_limit_nothing_is_called_recovered(
    name: str, p: int, told: int | None, method: SplitNewton
) -> None:
    observation, samples = planted(name, rows_of(p, SMALL_D), SMALL_N)
    found = assert_sound(observation.knowing(told), method)
    assert reconstruction_error(samples, found.candidates) > 0.1
    assert found.outcome is not Outcome.RECOVERED


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_constant_weights_have_no_samples(name: str, method: SplitNewton) -> None:
    observation, _ = planted(name, rows_of(80, SMALL_D), SMALL_N)
    found = assert_sound(replace(observation, weights=torch.ones(1, 80)), method)
    assert found.outcome is not Outcome.RECOVERED


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("told", [None, SMALL_N])
@pytest.mark.parametrize(("name", "p"), [("relu", 3), ("tanh", 1), ("tanh", 3)])
def test_hardly_any_weights_are_an_attack_that_ends(name: str, p: int, told: int | None, method: SplitNewton) -> None:
    found = assert_sound(planted(name, rows_of(p, SMALL_D), SMALL_N)[0].knowing(told), method)
    assert found.outcome is not Outcome.RECOVERED


HARD_ROWS = {
    "dead rows first": torch.cat([torch.zeros(100, SMALL_D), rows_of(150, SMALL_D)]),
    "a dead row now and then": rows_of(225, SMALL_D) * (torch.arange(225) % 3 > 0)[:, None],
    "dead rows until far behind": torch.cat([torch.zeros(2500, SMALL_D), rows_of(300, SMALL_D)]),
}
REFUSED_ROWS = {
    "rows that come twice": rows_of(75, SMALL_D).repeat(2, 1),
    "few rows many times": rows_of(20, SMALL_D).repeat(8, 1),
    "a plane": normal(150, 2, seed=7) @ normal(2, SMALL_D, seed=8) / SMALL_D,
    "a line": normal(150, 1, seed=7) @ normal(1, SMALL_D, seed=8) / SMALL_D,
    "a coordinate that no row sees": rows_of(150, SMALL_D) * (torch.arange(SMALL_D) > 0),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", HARD_ROWS)
def test_features_that_lack_something_are_an_attack_that_ends(case: str, method: SplitNewton) -> None:
    assert_sound(planted("relu", HARD_ROWS[case], SMALL_N)[0], method)


@pytest.mark.parametrize("case", REFUSED_ROWS)
def test_features_that_would_certify_themselves_or_leave_directions_out_are_refused(case: str) -> None:
    with pytest.raises(ExhumeError, match=r"expected (features that differ|rows of V that span)") as refused:
        run_attack(planted("relu", REFUSED_ROWS[case], SMALL_N)[0], SplitNewton())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("method", METHODS)
def test_a_single_weight_that_differs_from_zero_is_an_attack_that_ends(method: SplitNewton) -> None:
    weights = torch.zeros(1, 150)
    weights[0, 3] = 1.0
    observation = replace(planted("relu", rows_of(150, SMALL_D), SMALL_N)[0], weights=weights)
    assert assert_sound(observation, method).outcome is not Outcome.RECOVERED
