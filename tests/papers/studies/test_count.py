"""How many samples: by duplicates of the published attack, and by the certificate."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exhume.attacks import heavy_ball
from exhume.attacks.heavy_ball import HeavyBall
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import UsageError
from exhume.experiments.truth import load_truth, save_truth
from exhume.observation import Observation
from exhume_papers.studies.count import CountEstimate, arrange, as_csv, certified_samples, estimate, guess_samples
from exhume_papers.victims.random_features import RandomFeaturesConfig, draw_rows, train_random_features

N = 3


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load(DataConfig.parse(name="sphere", samples=N, dim=20, seed=0))


@pytest.fixture(scope="module")
def observation(data: Dataset) -> Observation:
    config = RandomFeaturesConfig(params=600, activation="relu", seed=0)
    return train_random_features(config, data, draw_rows(config, 20)).observation


@pytest.fixture(scope="module")
def guesses(data: Dataset, observation: Observation) -> list[CountEstimate]:
    fewer = guess_samples(observation, (2,), HeavyBall(iterations=40), truth=data.inputs)
    return [*fewer, *guess_samples(observation, (3, 5), HeavyBall(iterations=160), truth=data.inputs)]


def test_too_few_candidates_leave_the_weights_unexplained_and_enough_explain_them(guesses: list[CountEstimate]) -> None:
    fewer, equal, more = guesses
    assert fewer.found.loss > 1e-4
    assert fewer.needed is None
    assert max(equal.found.loss, more.found.loss) < 1e-6
    assert fewer.error is not None
    assert more.error is not None
    assert fewer.error > 0.3 > 0.05 > more.error


def test_more_candidates_than_samples_are_copies_or_idle(guesses: list[CountEstimate]) -> None:
    more = guesses[-1]
    assert more.copies + int(more.idle.sum()) == 2
    assert not bool((more.copy & more.idle).any())
    assert [guess.needed for guess in guesses[1:]] == [N, N]


def test_the_certificate_finds_the_number_by_itself(guesses: list[CountEstimate], observation: Observation) -> None:
    counts = estimate(guesses, certified_samples(observation))
    assert (counts.certificate, counts.outcome, counts.by_needed) == (N, "recovered", N)
    assert counts.summary()["count_by_certificate"] == N


def test_the_first_duplicate_gives_the_number_as_published(guesses: list[CountEstimate]) -> None:
    template = guesses[-1]
    none = torch.zeros(5, dtype=torch.bool)
    one = torch.tensor([True, False, False, False, False])
    tried = [replace(template, samples=size, copy=copy) for size, copy in ((4, none), (5, one), (9, one))]
    assert estimate(tried, template.found).by_duplicates == 4
    assert estimate(tried[:1], template.found).by_duplicates is None


def test_a_copy_is_the_weaker_one_of_two_candidates_in_one_direction(
    observation: Observation, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.cat([data.inputs, -data.inputs[1:2]])
    monkeypatch.setattr(heavy_ball, "_start", lambda problem, norm: _at(rows))
    (guess,) = guess_samples(observation, (4,), HeavyBall(iterations=1))
    assert guess.copies == 1
    assert set(guess.copy.nonzero().flatten().tolist()) <= {1, 3}


def _at(rows: torch.Tensor) -> object:
    from exhume.attacks.foundation.state import State

    return State({"candidates": rows, "velocity": torch.zeros_like(rows)}, {"iteration": 0})


def test_the_table_has_one_line_a_guess(guesses: list[CountEstimate]) -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv(guesses))))
    assert [int(line["guess"]) for line in lines] == [2, 3, 5]
    assert float(lines[1]["loss"]) == guesses[1].found.loss
    assert float(lines[1]["error"]) == guesses[1].error


def test_candidates_are_arranged_by_the_sample_they_resemble_with_its_sign(
    guesses: list[CountEstimate], tmp_path: Path
) -> None:
    faces = load(DataConfig.parse(name="faces", samples=3, side=5))
    save_truth(faces, None, tmp_path / "truth.safetensors")
    truth = load_truth(tmp_path / "truth.safetensors")
    mixed = torch.stack([-faces.inputs[2], faces.inputs[0], faces.inputs[1], 2 * faces.inputs[0]])
    found = replace(guesses[0].found, candidates=mixed, coefficients=torch.ones(4, 1))
    marks = torch.tensor([True, False, False, False])
    told = replace(guesses[0], samples=4, found=found, copy=marks, idle=~marks)
    arranged = arrange(found.candidates, told.spare, truth)
    pixels = truth.preparation.to_pixels(truth.inputs, truth.preparation.scale)
    assert torch.allclose(arranged.pictures, pixels[[0, 0, 1, 2]], atol=1e-5)
    assert arranged.marked.tolist() == [False, False, False, True]
    explained = replace(guesses[-1], found=replace(found, loss=1e-8), copy=marks, idle=~marks)
    assert explained.spare.all(), "idle candidates are known once the weights are explained"


def test_numbers_below_one_are_refused(observation: Observation) -> None:
    with pytest.raises(UsageError, match="guesses from 1, found 0"):
        list(guess_samples(observation, (0,)))
