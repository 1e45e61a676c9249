"""All samples but one are known: the missing one comes back exactly."""

from dataclasses import replace

import pytest
import torch

from exhume import seeds
from exhume.attacks.informed.attack import InformedAttack
from exhume.attacks.informed.missing_sample import least_squares, remainder
from exhume.attacks.running.loop import run_attack
from exhume.attacks.single_layer import certificate
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import UsageError
from exhume.known import Known
from exhume.observation import Observation
from exhume.reconstruction import Outcome, Reconstruction
from exhume_papers.victims.glm import GlmConfig, train_glm
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

D, N, MISSING = 20, 6, 2
LAMBDA = 0.05


def sphere(dtype: str = "float64") -> Dataset:
    rule = {"name": "sphere", "samples": N, "dim": D, "label_rule": "sign", "dtype": dtype}
    return load(DataConfig.parse(**rule, seed=seeds.derive(1, "data")))


def known_of(data: Dataset, labels: bool, loss: str = "square", intercept: bool = False) -> Known:
    others = torch.arange(N) != MISSING
    if not labels:
        return Known(data.inputs[others])
    return Known(data.inputs[others], data.labels[others], loss, LAMBDA, intercept)  # type: ignore[arg-type]


def ridge(
    name: str, fit: str = "ridge", bias: float = 0.0, dtype: str = "float64", params: int = 150
) -> tuple[Dataset, Observation]:
    data = sphere(dtype)
    penalty = LAMBDA if fit == "ridge" else None
    config = RandomFeaturesConfig(params=params, activation=name, fit=fit, ridge=penalty, bias=bias)  # type: ignore[arg-type]
    return data, train_random_features(config, data, draw_rows(config, D)).observation


def attack(observation: Observation, known: Known) -> Reconstruction:
    return run_attack(replace(observation, known=known).knowing(None), InformedAttack()).reconstruction


def error(data: Dataset, found: Reconstruction, sign_free: bool = False) -> float:
    truth, row = data.inputs[MISSING], found.candidates[0]
    distances = [float((truth - sign * row).norm()) / D**0.5 for sign in ((1, -1) if sign_free else (1,))]
    return min(distances)


@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_stationary_relu_fit_is_inverted_in_closed_form(bias: float, dtype: str) -> None:
    data, observation = ridge("relu", bias=bias, dtype=dtype)
    found = attack(observation, known_of(data, labels=True))
    assert found.facts["closed_form"]
    assert error(data, found) < 1e-6
    assert found.outcome is Outcome.RECOVERED
    assert found.candidates.shape == (1, D)


def test_a_search_in_double_precision_on_single_precision_weights_is_judged_where_unknowns_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(certificate, "DENSE", 1)
    data, observation = ridge("relu", fit="min-norm", dtype="float32", params=400)
    found = attack(observation, known_of(data, labels=False))
    assert error(data, found) < 1e-4
    assert found.certificate.held_out_loss is not None


@pytest.mark.parametrize("name", ["relu", "gelu", "relu+tanh", "tanh"])
def test_at_interpolation_no_label_is_needed(name: str) -> None:
    data, observation = ridge(name, fit="min-norm")
    found = attack(observation, known_of(data, labels=False))
    assert not found.facts["closed_form"]
    assert error(data, found, sign_free=name == "tanh") < 1e-6
    assert found.outcome is Outcome.RECOVERED


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_a_generalised_linear_model_gives_its_missing_sample_away(loss: str) -> None:
    data = sphere()
    victim = train_glm(GlmConfig(loss=loss, penalty=LAMBDA), data)  # type: ignore[arg-type]
    found = attack(victim.observation, known_of(data, labels=True, loss=loss, intercept=True))
    assert error(data, found) < 1e-6
    assert found.outcome is Outcome.RECOVERED, "its norm is the one that all samples have"
    assert found.certificate.held_out_rows == 1


def test_a_linear_model_whose_samples_are_not_all_right_is_found_out_by_the_norm() -> None:
    data = sphere()
    victim = train_glm(GlmConfig(loss="square", penalty=LAMBDA), data)
    known = known_of(data, labels=True, intercept=True)
    assert known.labels is not None
    wrong = replace(known, labels=-known.labels)
    assert attack(victim.observation, wrong).outcome is Outcome.SPURIOUS


def test_what_the_known_samples_leave_is_the_feature_of_the_missing_one() -> None:
    data, observation = ridge("relu")
    left = remainder(observation.ridge, observation.weights, known_of(data, labels=True), N)
    feature = observation.ridge(data.inputs[MISSING : MISSING + 1])[0]
    assert float(torch.nn.functional.cosine_similarity(left, feature, dim=0).abs()) == pytest.approx(1)


def test_samples_that_are_not_those_of_the_model_recover_nothing() -> None:
    data, observation = ridge("relu", fit="min-norm")
    found = attack(observation, Known(data.inputs[torch.arange(N) != MISSING].flip(1)))
    assert found.outcome in (Outcome.SPURIOUS, Outcome.NOT_CONVERGED)
    assert error(data, found, sign_free=True) > 0.5


def test_conjugate_gradients_solve_least_squares() -> None:
    stream = torch.Generator().manual_seed(0)
    matrix = torch.randn(12, 5, generator=stream, dtype=torch.float64)
    target = torch.randn(12, generator=stream, dtype=torch.float64)
    found = least_squares(lambda x: matrix @ x, lambda y: matrix.T @ y, target, damping=0.3)
    exact = torch.linalg.solve(matrix.T @ matrix + 0.3 * torch.eye(5).double(), matrix.T @ target)
    torch.testing.assert_close(found, exact)


def test_what_is_missing_is_said() -> None:
    data, observation = ridge("relu", fit="min-norm")
    with pytest.raises(UsageError, match="samples that are known"):
        run_attack(observation.knowing(None), InformedAttack())
    with pytest.raises(UsageError, match="all samples but one of 9"):
        run_attack(replace(observation, known=known_of(data, labels=False)).knowing(9), InformedAttack())
    linear = train_glm(GlmConfig(loss="square"), data).observation
    with pytest.raises(UsageError, match="labels, loss and penalty"):
        attack(linear, known_of(data, labels=False))
    few = ridge("relu", fit="min-norm", params=20)[1]
    with pytest.raises(UsageError, match=r"at least d \+ n"):
        attack(few, known_of(data, labels=False))
    with pytest.raises(UsageError, match="at least 1 iteration"):
        InformedAttack(iterations=0)
