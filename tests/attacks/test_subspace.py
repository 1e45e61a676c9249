import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Outline, Source
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.running.choice import choose
from exhume.attacks.running.loop import Progress, run_attack
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import ExhumeError, UsageError
from exhume.metrics.errors import evaluate
from exhume.observation import Observation
from exhume.reconstruction import Outcome
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

D, R, N = 100, 4, 5
QUICK = SplitNewton(rounds=2, attempts=1)


def chosen(method: str = "auto", *, known: Source | None = None, network: bool = False, **settings: Any) -> AnyMethod:
    outline = Outline(d=40, network=network, subspace=known)
    return choose(AttackSettings(method, **settings), lambda kind: outline)


def sphere(dtype: str = "float32") -> Dataset:
    return load(DataConfig.parse(name="sphere", samples=N, dim=D, subspace=R, label_rule="sign", dtype=dtype, seed=2))


def two_layer(width: int = 250, **fields: object) -> tuple[Observation, Dataset]:
    """Half as many weights as there are numbers in the data."""
    data = sphere()
    config = TwoLayerConfig.parse(**{"width": width, "knows_first_layer": True, "zero_head": True, "seed": 2, **fields})
    return train_two_layer(config, data).observation.knowing(N), data


def random_features(p: int, d: int = D, subspace: int | None = R) -> tuple[Observation, Dataset]:
    data = load(DataConfig.parse(name="sphere", samples=N, dim=d, subspace=subspace, seed=3))
    config = RandomFeaturesConfig(params=p, seed=1)
    return train_random_features(config, data, draw_rows(config, d)).observation.knowing(None), data


def test_a_trained_network_below_the_threshold_gives_its_data_away_through_its_first_layer() -> None:
    observation, data = two_layer()
    found = run_attack(observation, SubspaceAttack("first-layer", QUICK)).reconstruction
    assert found.facts["subspace_rank"] == found.summary()["subspace_rank"] == R
    assert found.candidates.shape == (N, D)
    assert evaluate(data.inputs, found.candidates).error < 0.002
    assert found.outcome is Outcome.RECOVERED


@pytest.mark.slow
def test_features_that_are_shown_halfway_serve_as_well() -> None:
    observation, data = two_layer(features_at="midpoint")
    found = run_attack(observation, SubspaceAttack("first-layer", QUICK)).reconstruction
    assert found.facts["subspace_rank"] == R
    assert evaluate(data.inputs, found.candidates).error < 0.002


def test_a_given_subspace_lowers_the_threshold_and_the_certificate_knows() -> None:
    observation, data = random_features(p=10 * R * N)
    basis = torch.linalg.svd(data.inputs, full_matrices=False).Vh[:R].T
    known = replace(observation, subspace=basis.contiguous()).knowing(N)
    assert Outline.of(known).subspace == "given"
    found = run_attack(known, chosen(known="given")).reconstruction
    assert evaluate(data.inputs, found.candidates).error < 1e-3
    assert found.outcome is Outcome.RECOVERED
    assert found.facts["subspace_rank"] == R


def test_a_wrong_subspace_is_not_certified() -> None:
    observation, _ = random_features(p=5 * R * N)
    wrong = torch.linalg.qr(torch.randn(D, R, generator=torch.Generator().manual_seed(0))).Q
    known = replace(observation, subspace=wrong).knowing(N)
    found = run_attack(known, SubspaceAttack("given", replace(QUICK, rounds=0))).reconstruction
    assert found.outcome in (Outcome.NOT_CONVERGED, Outcome.SPURIOUS)


def test_any_method_can_be_run_inside() -> None:
    observation, data = random_features(p=10 * R * N)
    basis = torch.linalg.svd(data.inputs, full_matrices=False).Vh[:R].T.contiguous()
    method = SubspaceAttack("given", HeavyBall(step_size=20.0, iterations=50))
    assert method.needs_samples
    found = run_attack(replace(observation, subspace=basis).knowing(N), method).reconstruction
    assert found.candidates.shape == (N, D)
    outside = found.candidates - (found.candidates @ basis) @ basis.T
    assert float(outside.norm()) < 1e-3 * float(found.candidates.norm())
    assert found.settings["inner"]["step_size"] == 20.0


@pytest.mark.slow
def test_a_span_from_moments_is_released_to_the_whole_space() -> None:
    observation, data = random_features(p=4 * 270 * N, d=270, subspace=None)
    method = SubspaceAttack("moments")
    attacked = run_attack(observation, method)
    assert {line["stage"] for line in attacked.trace} == {0, 1}
    assert evaluate(data.inputs, attacked.reconstruction.candidates).error < 1e-3
    assert attacked.reconstruction.outcome is Outcome.RECOVERED


def test_adam_is_refused_where_the_first_layer_is_insisted_on_and_told_where_it_is_not() -> None:
    observation, _ = two_layer(recipe=DescentRecipe(method="adam", steps=50))
    with pytest.raises(ExhumeError, match=r"change has low rank, found that its change has full rank .* such as Adam"):
        run_attack(observation, SubspaceAttack("first-layer", QUICK))
    method = chosen(known=Outline.of(observation).subspace, options={"iterations": 5})
    found = run_attack(observation, method).reconstruction
    assert "full rank" in found.facts["subspace"]
    assert found.facts["subspace_rank"] is None
    assert found.candidates.shape[1] == D


@pytest.mark.slow
def test_what_was_interrupted_goes_on_to_the_same_end(tmp_path: Path) -> None:
    observation, _ = two_layer()
    method, checkpoint = SubspaceAttack("first-layer", QUICK), tmp_path / "checkpoint.safetensors"
    whole = run_attack(observation, method)
    in_second = next(line["iteration"] for line in whole.trace if line["stage"] == 1) + 8

    def interrupt_at(iteration: float) -> None:
        def watch(progress: Progress) -> None:
            assert progress.step.candidates.shape[1] == D
            if progress.step.iteration == iteration:
                os.kill(os.getpid(), signal.SIGINT)

        assert run_attack(observation, method, checkpoint=checkpoint, watch=watch).interrupted

    interrupt_at(20)
    interrupt_at(in_second)
    resumed = run_attack(observation, method, checkpoint=checkpoint)
    assert torch.equal(resumed.reconstruction.candidates, whole.reconstruction.candidates)
    assert resumed.reconstruction.iterations == whole.reconstruction.iterations
    assert resumed.reconstruction.passes == pytest.approx(whole.reconstruction.passes)
    iterations = [line["iteration"] for line in resumed.trace]
    assert iterations == sorted(set(iterations))


def test_a_further_stage_without_enough_equations_is_left_out() -> None:
    observation, _ = two_layer(width=50)
    attacked = run_attack(observation, SubspaceAttack("first-layer", replace(QUICK, iterations=30)))
    assert {line["stage"] for line in attacked.trace} == {0}


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        ({"method": "subspace"}, "observation that knows none"),
        ({"network": True, "subspace": "moments"}, "no subspace with a network"),
        ({"method": "subspace", "network": True}, "no subspace with a network"),
    ],
)
def test_subspaces_that_cannot_be_had_are_refused(request_: dict[str, Any], found: str) -> None:
    with pytest.raises(UsageError, match=found):
        chosen(**request_)


def test_sources_that_an_observation_does_not_have_are_refused() -> None:
    observation, _ = random_features(p=100)
    with pytest.raises(UsageError, match="knows the initial first layer"):
        run_attack(observation, SubspaceAttack("first-layer"))
    with pytest.raises(UsageError, match="give --subspace FILE"):
        run_attack(observation, SubspaceAttack("given"))
    with pytest.raises(UsageError, match="heavy-ball, which cannot go on"):
        run_attack(observation.knowing(N), SubspaceAttack("moments", HeavyBall()))


def test_the_method_is_chosen_by_what_is_known() -> None:
    assert isinstance(chosen(), SplitNewton)
    assert isinstance(chosen("split-newton", known="first-layer"), SplitNewton)
    assert chosen(known="first-layer") == SubspaceAttack("first-layer", SplitNewton(), insist=False)
    assert chosen("subspace", known="first-layer") == SubspaceAttack("first-layer", SplitNewton())
    inside = chosen("heavy-ball", subspace="given", options={"step": 3.0})
    assert inside == SubspaceAttack("given", HeavyBall(step_size=3.0))
