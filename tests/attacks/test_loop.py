import itertools
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from exhume.activations import activation
from exhume.attacks.foundation.state import State
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running import loop
from exhume.attacks.running.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from exhume.attacks.running.loop import Attacked, Limits, Progress, run_attack
from exhume.attacks.running.snapshots import SnapshotKeeper
from exhume.attacks.single_layer import case as ridge_case
from exhume.attacks.single_layer.memory_plan import Sizes
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold, write_rows
from exhume.layer_states import LayerStates
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Outcome

D, N, P = 8, 2, 400
METHOD = HeavyBall(step_size=2.0, iterations=25, tolerance=0.0)
ENDLESS = replace(METHOD, iterations=10**9)


def observation_of(seed: int = 0, name: str = "relu") -> Observation:
    stream = torch.Generator().manual_seed(seed)
    samples = torch.randn(N, D, generator=stream, dtype=torch.float64)
    samples *= D**0.5 / samples.norm(dim=1, keepdim=True)
    features = RidgeFeatures(DrawnRows(1, P, D), activation(name))
    weights = torch.randn(1, N, generator=stream, dtype=torch.float64) @ features(samples)
    return Observation(features, weights.float(), Knowledge(N, D**0.5))


OBSERVATION = observation_of()


def with_layer(name: str = "0", target: float = 1.0, end: float = 1.0) -> Observation:
    ends = (torch.ones(3, D), torch.full((3, D), end))
    return replace(OBSERVATION, layers=(LayerStates(name, torch.full((3, D), target), ends, bias=False),))


LAYERED = with_layer()


def interrupt_at(*iterations: int) -> Callable[[Progress], None]:
    """Presses Ctrl-C once for every time that an iteration is named."""

    def watch(progress: Progress) -> None:
        for _ in range(iterations.count(progress.step.iteration)):
            os.kill(os.getpid(), signal.SIGINT)

    return watch


def assert_same_result(one: Attacked, two: Attacked) -> None:
    assert torch.equal(one.reconstruction.candidates, two.reconstruction.candidates)
    assert torch.equal(one.reconstruction.coefficients, two.reconstruction.coefficients)
    assert one.reconstruction.loss == two.reconstruction.loss
    assert one.reconstruction.iterations == two.reconstruction.iterations
    assert one.reconstruction.certificate == two.reconstruction.certificate
    assert one.reconstruction.passes == two.reconstruction.passes
    assert without_clock(one.trace) == without_clock(two.trace)


def without_clock(trace: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{column: line[column] for column in line if column != "seconds"} for line in trace]


@pytest.fixture(scope="module")
def undisturbed() -> Attacked:
    return run_attack(OBSERVATION, METHOD)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(undisturbed: Attacked) -> None:
    assert_same_result(run_attack(OBSERVATION, METHOD, seed=0), undisturbed)
    other = run_attack(OBSERVATION, METHOD, seed=1)
    assert (other.reconstruction.candidates - undisturbed.reconstruction.candidates).abs().min() > 0


def test_the_result_says_what_was_run(undisturbed: Attacked) -> None:
    found = undisturbed.reconstruction
    assert (found.method, found.iterations, found.seed) == ("heavy-ball", 25, 0)
    assert found.passes == 51
    assert found.settings["step_size"] == 2.0
    assert found.settings["samples"] == N
    assert 10 < found.peak_memory_mb < 100_000
    assert not undisturbed.interrupted
    assert found.certificate.held_out_rows == P // 40, "the other half of the 5 % is for steering"
    assert len(found.certificate.confidence) == N


def test_the_coefficients_belong_to_the_weights_as_published(undisturbed: Attacked) -> None:
    found = undisturbed.reconstruction
    scaled = replace(OBSERVATION, weights=OBSERVATION.weights * 1024)
    again = run_attack(scaled, METHOD).reconstruction
    assert torch.equal(again.candidates, found.candidates)
    torch.testing.assert_close(again.coefficients, found.coefficients * 1024)
    used = P - P // 20
    features = OBSERVATION.ridge(found.candidates)[:, :used].double()
    residual = OBSERVATION.weights[:, :used] - found.coefficients.T @ features
    assert float(residual.square().sum() / OBSERVATION.weights[:, :used].square().sum()) == pytest.approx(
        found.loss, rel=1e-3
    )


def test_the_trace_has_one_line_an_iteration_and_grows(undisturbed: Attacked) -> None:
    trace = undisturbed.trace
    assert [line["iteration"] for line in trace] == list(range(26))
    assert [line["passes"] for line in trace] == [1 + 2 * step for step in range(26)]
    assert all(later["seconds"] >= earlier["seconds"] for earlier, later in itertools.pairwise(trace))
    assert trace[-1]["loss"] == undisturbed.reconstruction.loss
    assert {"iteration", "loss", "passes", "seconds"} <= set(trace[0])


def test_what_an_onlooker_returns_is_not_read_and_all_iterations_are_shown(undisturbed: Attacked) -> None:
    seen: list[int] = []

    def watch(progress: Progress) -> None:
        seen.append(progress.step.iteration)
        return "stop"  # type: ignore[return-value]

    assert_same_result(run_attack(OBSERVATION, METHOD, watch=_untyped(watch)), undisturbed)
    assert seen == list(range(26))


def _untyped(watch: Callable[..., Any]) -> Callable[[Progress], None]:
    return watch


@pytest.mark.parametrize("stops", [(0,), (1,), (7,), (24,), (25,), (3, 4, 20)])
def test_an_interrupted_attack_goes_on_to_the_same_bits(
    tmp_path: Path, stops: tuple[int, ...], undisturbed: Attacked
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for stop in stops:
        stopped = run_attack(OBSERVATION, METHOD, watch=interrupt_at(stop), checkpoint=checkpoint)
        assert stopped.interrupted
        assert stopped.reconstruction.iterations == stop
        assert [line["iteration"] for line in stopped.trace] == list(range(stop + 1))
        assert checkpoint.exists()
    resumed = run_attack(OBSERVATION, METHOD, checkpoint=checkpoint)
    assert_same_result(resumed, undisturbed)
    assert not resumed.interrupted
    assert [line["iteration"] for line in resumed.trace] == list(range(26))
    assert all(later["seconds"] >= earlier["seconds"] for earlier, later in itertools.pairwise(resumed.trace))
    assert not resumed.stopped
    assert list(tmp_path.iterdir()) == [checkpoint], "the caller removes it, once what was found is safe"


def test_an_attack_that_crashed_goes_on_from_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Attacked
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    checkpoint = tmp_path / "checkpoint"

    def crash(progress: Progress) -> None:
        if progress.step.iteration == 9:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        run_attack(OBSERVATION, METHOD, watch=crash, checkpoint=checkpoint)
    shown: list[int] = []
    resumed = run_attack(
        OBSERVATION, METHOD, watch=lambda progress: shown.append(progress.step.iteration), checkpoint=checkpoint
    )
    assert shown[0] == 8
    assert_same_result(resumed, undisturbed)


def test_a_checkpoint_is_written_every_now_and_then_only(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    run_attack(
        OBSERVATION,
        METHOD,
        watch=lambda _: pytest.fail("too early") if checkpoint.exists() else None,
        checkpoint=checkpoint,
    )


def test_without_a_checkpoint_ctrl_c_still_gives_what_was_found() -> None:
    stopped = run_attack(OBSERVATION, ENDLESS, watch=interrupt_at(5))
    assert stopped.interrupted
    assert stopped.reconstruction.iterations == 5
    assert stopped.reconstruction.outcome in (Outcome.NOT_CONVERGED, Outcome.PARTIAL)


@pytest.fixture
def own_handler() -> Iterator[Callable[..., None]]:
    """A SIGINT handler that is not Python's default, to see it come back."""

    def handler(number: int, frame: object) -> None:
        raise AssertionError("not while an attack runs")

    before = signal.signal(signal.SIGINT, handler)
    yield handler
    signal.signal(signal.SIGINT, before)


def test_the_second_ctrl_c_stops_at_once_and_the_handler_comes_back(own_handler: Callable[..., None]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_attack(OBSERVATION, ENDLESS, watch=interrupt_at(4, 4))
    assert signal.getsignal(signal.SIGINT) is own_handler


def test_the_handler_comes_back_after_the_end_an_interruption_and_a_failure(own_handler: Callable[..., None]) -> None:
    run_attack(OBSERVATION, METHOD)
    assert signal.getsignal(signal.SIGINT) is own_handler
    run_attack(OBSERVATION, ENDLESS, watch=interrupt_at(2))
    assert signal.getsignal(signal.SIGINT) is own_handler
    with pytest.raises(ZeroDivisionError):
        run_attack(OBSERVATION, METHOD, watch=_untyped(lambda progress: 1 // 0))
    assert signal.getsignal(signal.SIGINT) is own_handler


CHANGES: dict[str, tuple[Observation, HeavyBall, dict[str, Any]]] = {
    "seed": (OBSERVATION, METHOD, {"seed": 5}),
    "step": (OBSERVATION, replace(METHOD, step_size=1.0), {}),
    "iterations": (OBSERVATION, replace(METHOD, iterations=20), {}),
    "held-out share": (OBSERVATION, METHOD, {"held_out": 0.1}),
    "precision": (OBSERVATION, METHOD, {"dtype": torch.float64}),
    "number of samples": (OBSERVATION.knowing(3), METHOD, {}),
    "weights": (observation_of(seed=1), METHOD, {}),
    "activation": (
        replace(OBSERVATION, features=replace(OBSERVATION.ridge, activation=activation("gelu"))),
        METHOD,
        {},
    ),
    "norm": (replace(OBSERVATION, knowledge=Knowledge(N, 1.0)), METHOD, {}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_checkpoint_of_another_attack_is_not_used(tmp_path: Path, change: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    run_attack(OBSERVATION, METHOD, watch=interrupt_at(10), checkpoint=checkpoint)
    observation, method, settings = CHANGES[change]
    shown: list[int] = []
    attacked = run_attack(
        observation,
        method,
        checkpoint=checkpoint,
        watch=lambda progress: shown.append(progress.step.iteration),
        **settings,
    )
    assert shown[0] == 0
    assert_same_result(attacked, run_attack(observation, method, **settings))


@pytest.mark.parametrize(
    "other",
    [OBSERVATION, with_layer(name="2"), with_layer(target=2.0), with_layer(end=2.0)],
    ids=["no layer", "name", "target", "end"],
)
def test_the_checkpoint_of_another_state_of_a_layer_is_not_used(tmp_path: Path, other: Observation) -> None:
    checkpoint = tmp_path / "checkpoint"
    run_attack(LAYERED, METHOD, watch=interrupt_at(10), checkpoint=checkpoint)
    kept, shown = checkpoint.read_bytes(), []

    def watch(progress: Progress) -> None:
        shown.append(progress.step.iteration)

    for observation, first in ((with_layer(), 10), (other, 0)):
        shown.clear()
        checkpoint.write_bytes(kept)
        run_attack(observation, METHOD, checkpoint=checkpoint, watch=watch)
        assert shown[0] == first


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ExhumeError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_damaged_checkpoint_is_one_line_at_every_length(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    run_attack(OBSERVATION, METHOD, watch=interrupt_at(3), checkpoint=checkpoint)
    whole = checkpoint.read_bytes()
    for length in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        checkpoint.write_bytes(whole[:length])
        message = refusal(lambda: run_attack(OBSERVATION, METHOD, checkpoint=checkpoint))
        assert str(checkpoint) in message
    assert checkpoint.exists(), "nobody's file is removed unasked"


def test_the_numbers_of_a_trace_come_back_as_what_they_were(tmp_path: Path) -> None:
    line = {"iteration": 3, "loss": 0.5, "candidates": 2, "passes": 4.0}
    save_checkpoint(tmp_path / "c", Checkpoint({}, State({}, {}), (line,)))
    loaded = load_checkpoint(tmp_path / "c", {})
    assert loaded is not None
    assert [(name, type(value), value) for name, value in loaded.trace[0].items()] == [
        (name, type(value), value) for name, value in line.items()
    ]


def test_stages_of_a_method_may_note_different_numbers(tmp_path: Path) -> None:
    lines: tuple[dict[str, float], ...] = (
        {"iteration": 1, "resolution": 256},
        {"iteration": 2, "phase": 0, "loss": 0.5},
    )
    save_checkpoint(tmp_path / "c", Checkpoint({}, State({}, {}), lines))
    loaded = load_checkpoint(tmp_path / "c", {})
    assert loaded is not None
    assert loaded.trace == lines
    assert isinstance(loaded.trace[0]["resolution"], int)
    assert isinstance(loaded.trace[1]["phase"], int)


def test_what_was_kept_of_the_way_comes_back_with_the_checkpoint(tmp_path: Path) -> None:
    checkpoint, first, other, later = tmp_path / "checkpoint", SnapshotKeeper(), SnapshotKeeper(), SnapshotKeeper()
    stopped = run_attack(OBSERVATION, METHOD, watch=interrupt_at(3), checkpoint=checkpoint, keeper=first)
    assert [shot.iteration for shot in stopped.snapshots] == [0, 1, 2, 3]
    run_attack(OBSERVATION, METHOD, seed=5, checkpoint=checkpoint, keeper=other)
    assert not torch.equal(other.kept[0].places, first.kept[0].places), "another attack's"
    whole = run_attack(OBSERVATION, METHOD, checkpoint=checkpoint, keeper=later)
    assert torch.equal(later.kept[0].places, first.kept[0].places)
    assert whole.snapshots[0].iteration == 0


def test_a_checkpoint_with_part_of_what_was_kept_of_the_way_is_one_line(tmp_path: Path) -> None:
    class Forgetful(SnapshotKeeper):
        def pages(self) -> dict[str, torch.Tensor]:
            return {name: page for name, page in super().pages().items() if name != "stride"}

    checkpoint = tmp_path / "checkpoint"
    run_attack(OBSERVATION, METHOD, watch=interrupt_at(3), checkpoint=checkpoint, keeper=Forgetful())
    message = refusal(lambda: run_attack(OBSERVATION, METHOD, checkpoint=checkpoint, keeper=SnapshotKeeper()))
    assert str(checkpoint) in message
    assert "stride" in message


def test_a_checkpoint_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "checkpoint"
    refusal(lambda: run_attack(OBSERVATION, METHOD, watch=interrupt_at(3), checkpoint=place))


def test_a_checkpoint_holds_the_state_and_the_trace(tmp_path: Path) -> None:
    stopped = run_attack(OBSERVATION, METHOD, watch=interrupt_at(3), checkpoint=tmp_path / "checkpoint")
    tensors = load_file(tmp_path / "checkpoint")
    assert torch.equal(tensors["state.candidates"], stopped.reconstruction.candidates)
    assert tensors["trace"].shape == (4, 4), "iteration, loss, passes, seconds"


def test_the_time_budget_ends_an_endless_attack_and_can_be_extended(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    began = time.monotonic()
    first = run_attack(OBSERVATION, ENDLESS, limits=Limits(seconds=0.2), checkpoint=checkpoint)
    assert 0.2 <= time.monotonic() - began < 20
    assert not first.interrupted
    assert first.stopped
    assert checkpoint.exists()
    more = run_attack(OBSERVATION, ENDLESS, limits=Limits(seconds=1.0), checkpoint=checkpoint)
    assert more.reconstruction.iterations > first.reconstruction.iterations


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_time_budget_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="time budget"):
        Limits(seconds=seconds)


@pytest.mark.parametrize("size", [0, -5])
def test_a_memory_budget_that_is_none_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match="memory budget"):
        Limits(memory_bytes=size)


def test_rows_are_held_where_they_fit_and_streamed_where_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def spy(rows: Any, *arguments: Any) -> HeldRows:
        calls.append(rows.p)
        return hold(rows, *arguments)

    monkeypatch.setattr(ridge_case, "hold", spy)
    used = P - P // 20
    enough = Sizes(used, D, 1, 4, N, few_rows=False).needed_bytes(used, held=True)
    for memory, expected in ((enough, [used]), (enough - 1, []), (1, []), (None, [used])):
        calls.clear()
        run_attack(OBSERVATION, replace(METHOD, iterations=1), limits=Limits(memory_bytes=memory))
        assert calls == expected


def test_streamed_rows_lead_to_the_same_candidates_as_held_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = run_attack(OBSERVATION, METHOD, dtype=torch.float64)
    monkeypatch.setattr("exhume.features.rows.BLOCK_BYTES", 256 * D * 4)
    mapped = write_rows(OBSERVATION.ridge.rows, tmp_path / "v")
    for rows in (OBSERVATION.ridge.rows, mapped):
        observation = replace(OBSERVATION, features=replace(OBSERVATION.ridge, rows=rows))
        streamed = run_attack(observation, METHOD, dtype=torch.float64, limits=Limits(memory_bytes=1))
        torch.testing.assert_close(
            streamed.reconstruction.candidates, held.reconstruction.candidates, atol=1e-9, rtol=0
        )
        assert streamed.reconstruction.passes == held.reconstruction.passes


def test_the_attack_never_sees_the_held_out_rows(undisturbed: Attacked) -> None:
    used = P - P // 20
    weights = OBSERVATION.weights.clone()
    weights[:, used:] = 1e6 * torch.randn(1, P - used, generator=torch.Generator().manual_seed(3))
    rows = hold(OBSERVATION.ridge.rows).values
    rows[used:] *= 1e3
    features = RidgeFeatures(HeldRows(rows), OBSERVATION.ridge.activation)
    attacked = run_attack(replace(OBSERVATION, features=features, weights=weights), METHOD)
    assert torch.equal(attacked.reconstruction.candidates, undisturbed.reconstruction.candidates)
    assert torch.equal(attacked.reconstruction.coefficients, undisturbed.reconstruction.coefficients)
    assert [line["loss"] for line in attacked.trace] == [line["loss"] for line in undisturbed.trace]
    assert attacked.reconstruction.held_out_loss != undisturbed.reconstruction.held_out_loss


def test_a_held_out_row_of_the_attack_would_have_been_noticed(undisturbed: Attacked) -> None:
    weights = OBSERVATION.weights.clone()
    weights[:, P - P // 20 - 1] += 1
    attacked = run_attack(replace(OBSERVATION, weights=weights), METHOD)
    assert not torch.equal(attacked.reconstruction.candidates, undisturbed.reconstruction.candidates)


def test_the_norm_is_the_one_that_is_known_or_the_root_of_d() -> None:
    for norm, expected in ((None, D**0.5), (3.0, 3.0)):
        observation = replace(OBSERVATION, knowledge=Knowledge(N, norm))
        found = run_attack(observation, replace(METHOD, iterations=2)).reconstruction
        torch.testing.assert_close(found.candidates.norm(dim=1), torch.full((N,), expected))


def test_rows_of_a_file_that_are_not_finite_are_one_line() -> None:
    rows = hold(OBSERVATION.ridge.rows).values
    rows[7, 3] = torch.nan
    features = replace(OBSERVATION.ridge, rows=HeldRows(rows))
    refusal(lambda: run_attack(replace(OBSERVATION, features=features), METHOD))


def test_a_single_weight_can_be_attacked() -> None:
    features = RidgeFeatures(DrawnRows(1, 1, D), activation("tanh"))
    observation = Observation(features, torch.ones(1, 1), Knowledge(N, D**0.5))
    found = run_attack(observation, METHOD).reconstruction
    assert found.held_out_loss is None
    assert found.outcome is not Outcome.RECOVERED
