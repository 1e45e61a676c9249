"""Several ranks give what one process gives. They are threads here: real processes are tested with the command line."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.ranks import ALONE, Ranks, RanksLost
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running.loop import Attacked, Limits, run_attack
from exhume.attacks.single_layer import certificate
from exhume.attacks.single_layer.admission import check_features
from exhume.attacks.single_layer.certificate import loss_on
from exhume.attacks.single_layer.gauss_newton import curve, linearise, mean_square, newton_move
from exhume.attacks.single_layer.proposals import moment_proposals, pooled_proposals
from exhume.attacks.single_layer.signs import repair_signs
from exhume.attacks.single_layer.span import SpanLoss
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.single_layer.split_step import split_move
from exhume.attacks.tangent.newton import KktAttack
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold
from exhume.observation import Knowledge, Observation

T = TypeVar("T")
D, M, P = 8, 3, 700


class Table:
    """Where threads put what they have, and see what the others have."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=100)
        self.places: list[Any] = [None] * size
        self.rounds = 0

    def exchange(self, rank: int, thing: Any) -> list[Any]:
        try:
            self.places[rank] = thing
            self.barrier.wait()
            seen = list(self.places)
            self.rounds += rank == 0
            self.barrier.wait()
            return seen
        except threading.BrokenBarrierError as problem:
            raise RanksLost("expected all ranks, found that one has stopped") from problem


@dataclass(frozen=True, eq=False)
class ThreadRanks(Ranks):
    store: Any = None
    leaves_after: int = 10**9
    """How many sums it takes part in."""

    def _reduce(self, values: Tensor, how: Any) -> Tensor:
        if self.store.rounds >= self.leaves_after:
            raise RanksLost("expected 2 ranks, found that one has stopped")
        everyone = torch.stack(self.store.exchange(self.rank, values))
        return everyone.sum(dim=0) if how == dist.ReduceOp.SUM else everyone.amax(dim=0)

    def same(self, values: Tensor) -> Tensor:
        return self.store.exchange(self.rank, values)[0].clone()

    def from_first(self, thing: T) -> T:
        return self.store.exchange(self.rank, thing)[0]


def on_ranks(size: int, work: Callable[[Ranks], T], leaves_after: int = 10**9) -> list[T]:
    """What `work` returns on each of the ranks, in their order. The first failure is raised here."""
    table, results, failures = Table(size), dict[int, T](), list[BaseException]()  # a rank's own failure comes first

    def act(rank: int) -> None:
        try:
            results[rank] = work(ThreadRanks(rank, size, size, table, leaves_after))
        except BaseException as problem:
            failures.append(problem)
            table.barrier.abort()

    threads = [threading.Thread(target=act, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure
    return [results[rank] for rank in range(size)]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def candidates_of(m: int = M, d: int = D) -> Tensor:
    return to_norm(normal(m, d, seed=2), d**0.5)


def loss_of(ranks: Ranks, name: str = "relu", k: int = 2, bias: bool = False, p: int = P) -> SpanLoss:
    features = RidgeFeatures(DrawnRows(4, p, D), activation(name), 0.5 * normal(p, seed=9) if bias else None)
    own = ranks.share.of(features)
    held = replace(own, rows=hold(own.rows, dtype=torch.float64))
    return SpanLoss(held, ranks.share.columns(normal(k, p, seed=1)), torch.float64, "cpu", ranks)


def assert_all_close(ours: Sequence[Tensor | float], theirs: Sequence[Tensor | float]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(other), rtol=1e-8, atol=1e-8)


def assert_same_on_ranks(work: Callable[[Ranks], Sequence[Tensor | float]]) -> None:
    """With four ranks the last of them has no row at all, and most have none of a small part."""
    expected = work(ALONE)
    for found in on_ranks(4, work):
        assert_all_close(found, expected)


@pytest.mark.parametrize("rows", [P, 40])
@pytest.mark.parametrize(("affine", "bias"), [(False, False), (True, False), (True, True)])
def test_a_fit_its_gradient_and_its_model_are_those_of_one_process(rows: int, affine: bool, bias: bool) -> None:
    def work(ranks: Ranks) -> list[Tensor | float]:
        loss = loss_of(ranks, bias=bias).part(rows, affine)
        fit = loss.fit(candidates_of())
        model = linearise(loss, fit)
        newton = newton_move(loss, model, 0.1, 4, 0.01)
        split = split_move(loss, model, 0.1, velocity=0.01 * candidates_of().flip(0))
        return [
            *(loss.p, loss.energy, loss.scale, loss.outputs, loss.equations, loss.passes, mean_square(loss)),
            *(fit.loss, fit.coefficients, fit.gram, loss.gradient(fit)),
            *(model.metric, model.descent, curve(loss, model, candidates_of()), newton.change, newton.predicted),
            *(split.change, split.predicted, loss.to(torch.float32).energy),
        ]

    assert_same_on_ranks(work)


def test_residual_and_projection_stay_with_the_rows_of_each_rank() -> None:
    def work(ranks: Ranks) -> tuple[Tensor, Tensor]:
        loss = loss_of(ranks).part(P, affine=True)
        fit = loss.fit(candidates_of())
        left, _ = loss.project(fit, ranks.share.columns(normal(2, P, seed=3)))
        return torch.cat([fit.residual, left, loss.bare_residual()]), ranks.share.numbers(P)

    expected, _ = work(ALONE)
    for own, numbers in on_ranks(3, work):
        assert_all_close([own], [expected[:, numbers]])


def test_nearly_parallel_features_are_summed_in_full_precision() -> None:
    def work(ranks: Ranks) -> list[Tensor | float]:
        loss = loss_of(ranks, "sigmoid").to(torch.float32)
        rows = candidates_of().float()
        fit = loss.fit(torch.cat([rows, rows + 1e-3 * rows.flip(1)]))
        return [fit.loss, fit.gram]

    expected = work(ALONE)
    for found in on_ranks(2, work):
        for mine, other in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(other), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_proposals_are_those_of_one_process(name: str) -> None:
    def work(ranks: Ranks) -> list[Tensor | float]:
        loss = loss_of(ranks, name)
        residual = loss.fit(candidates_of()).residual
        moments = moment_proposals(loss, residual, D**0.5)
        pooled = pooled_proposals(loss, residual, D**0.5, torch.Generator().manual_seed(0))
        return [moments.rows.abs(), moments.outside, pooled.rows.abs(), pooled.outside]

    assert_same_on_ranks(work)


@pytest.mark.parametrize("name", ["relu", "sigmoid"])
def test_signs_are_repaired_as_by_one_process(name: str) -> None:
    truth = candidates_of(4)

    def work(ranks: Ranks) -> list[Tensor]:
        whole = RidgeFeatures(DrawnRows(4, P, D), activation(name))
        weights = normal(1, 4, seed=6) @ whole(truth)
        loss = SpanLoss(ranks.share.of(whole), ranks.share.columns(weights), torch.float64, "cpu", ranks)
        turned = truth.clone()
        turned[1:3] *= -1
        return [repair_signs(loss, turned)]

    assert_same_on_ranks(work)
    assert_all_close(work(ALONE), [truth])


def test_the_loss_on_unseen_rows_is_that_of_one_process() -> None:
    observation = observed("relu", P)

    def work(ranks: Ranks) -> list[float]:
        found = loss_on(observation, P - 130, 130, candidates_of(), normal(M, 1, seed=5), ranks)
        return [found or 0.0]

    assert_same_on_ranks(work)
    assert work(ALONE)[0] > 0


def test_rows_that_repeat_on_different_ranks_are_found() -> None:
    rows = hold(DrawnRows(4, P, D)).values.clone()
    rows[-1] = rows[3]
    features = RidgeFeatures(HeldRows(rows), activation("relu"))
    with pytest.raises(ExhumeError, match="1 rows of V that occur again"):
        on_ranks(2, lambda ranks: check_features(features, ranks))


# --- whole attacks


def observed(name: str, p: int, d: int = D, n: int = M) -> Observation:
    features = RidgeFeatures(DrawnRows(7, p, d), activation(name))
    weights = torch.tensor([[1.0, -0.7, 1.4, 0.8][:n]], dtype=torch.float64) @ features(candidates_of(n, d))
    return Observation(features, weights, Knowledge(samples=n, norm=d**0.5))


def attacked(observation: Observation, method: AnyMethod, ranks: Ranks, checkpoint: Path | None = None) -> Attacked:
    limits = Limits(seconds=60)
    return run_attack(
        observation, method, limits=limits, dtype=torch.float64, checkpoint=checkpoint, ranks=ranks, seed=1
    )


METHODS = {  # they stop before what is left is rounding alone
    "dense": SplitNewton(iterations=20),
    "split": SplitNewton(dense_dim=1, iterations=32),
    "published": HeavyBall(iterations=40, step_size=1.0),
}


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_an_attack_takes_the_steps_of_one_process(method: AnyMethod) -> None:
    observation = observed("relu", 1500)
    alone = attacked(observation, method, ALONE)
    for together in on_ranks(2, lambda ranks: attacked(observation, method, ranks)):
        assert len(together.trace) == len(alone.trace)
        for ours, theirs in zip(together.trace, alone.trace, strict=True):
            assert ours["passes"] == theirs["passes"]
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        ours_found, theirs_found = together.reconstruction, alone.reconstruction
        torch.testing.assert_close(ours_found.candidates, theirs_found.candidates, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours_found.coefficients, theirs_found.coefficients, rtol=0, atol=1e-5)
        assert ours_found.certificate.outcome == theirs_found.certificate.outcome


@pytest.mark.usefixtures("shapes_unchecked")
def test_each_rank_holds_its_share_of_v_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    keep = HeldRows.__init__

    def noting(self: HeldRows, values: Tensor, coarse: bool = False) -> None:
        held.append(len(values))
        keep(self, values, coarse)

    monkeypatch.setattr(HeldRows, "__init__", noting)
    monkeypatch.setattr(certificate, "DENSE", 0)  # of few unknowns each rank looks at some thousand rows in the end
    observation = observed("relu", 1500)
    on_ranks(3, lambda ranks: attacked(observation, HeavyBall(iterations=1), ranks))
    assert max(held) <= 2 * 256  # 1,425 rows are used, of which 512, 512 and 401 are dealt


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("method", [METHODS["dense"], METHODS["published"]], ids=["dense", "published"])
def test_a_lost_rank_leaves_a_checkpoint_from_which_another_number_of_ranks_goes_on(
    tmp_path: Path, method: AnyMethod
) -> None:
    observation, checkpoint = observed("relu", 1500), tmp_path / "checkpoint.safetensors"
    with pytest.raises(RanksLost, match="one has stopped"):
        on_ranks(2, lambda ranks: attacked(observation, method, ranks, checkpoint), leaves_after=150)
    assert checkpoint.exists()
    with pytest.raises(RanksLost, match="one has stopped"):
        on_ranks(3, lambda ranks: attacked(observation, method, ranks, checkpoint), leaves_after=150)
    alone, resumed = attacked(observation, method, ALONE), attacked(observation, method, ALONE, checkpoint)
    assert not resumed.stopped
    assert [line["passes"] for line in resumed.trace] == [line["passes"] for line in alone.trace]
    torch.testing.assert_close(resumed.reconstruction.candidates, alone.reconstruction.candidates, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("shapes_unchecked")
def test_only_the_first_rank_keeps_a_checkpoint(tmp_path: Path) -> None:
    observation, method = observed("relu", 1500), HeavyBall(iterations=3)
    folders = [tmp_path / str(rank) for rank in range(2)]
    for folder in folders:
        folder.mkdir()
    with pytest.raises(RanksLost):
        on_ranks(
            2, lambda ranks: attacked(observation, method, ranks, folders[ranks.rank] / "checkpoint"), leaves_after=40
        )
    assert [len(list(folder.iterdir())) for folder in folders] == [1, 0]


@pytest.mark.usefixtures("shapes_unchecked")
def test_ranks_that_see_different_observations_are_refused() -> None:
    observations = [observed("relu", 1500), observed("tanh", 1500)]
    with pytest.raises(ExhumeError, match="the same run folder"):
        on_ranks(2, lambda ranks: attacked(observations[ranks.rank], HeavyBall(iterations=1), ranks))


def test_a_method_whose_rows_are_not_shared_is_refused() -> None:
    with pytest.raises(UsageError, match="expected one process for kkt, found 2 ranks"):
        on_ranks(2, lambda ranks: attacked(observed("relu", 1500), KktAttack(), ranks))


@pytest.mark.usefixtures("shapes_unchecked")
def test_the_budget_of_any_rank_ends_the_attack_on_all() -> None:
    observation, method = observed("relu", 1500), HeavyBall(iterations=10**6, step_size=1e-9)

    def work(ranks: Ranks) -> Attacked:
        limits = Limits(seconds=0.2 if ranks.rank == 1 else 60)
        return run_attack(observation, method, limits=limits, ranks=ranks)

    first, second = on_ranks(2, work)
    assert first.stopped
    assert len(first.trace) == len(second.trace) > 1
