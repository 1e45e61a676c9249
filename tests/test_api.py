"""The names that a user of the library imports."""

import math
import re
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch import nn

import exhume
from exhume.activations import activation
from exhume.errors import UsageError


def small_problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(0)
    samples = torch.randn(3, 12, generator=stream)
    samples = samples * math.sqrt(12) / samples.norm(dim=1, keepdim=True)
    rows = torch.randn(400, 12, generator=stream) / math.sqrt(12)
    weights = torch.randn(3, generator=stream) @ activation("relu").value(samples @ rows.T)
    return samples, rows, weights


def test_arrays_go_in_and_the_training_inputs_come_out() -> None:
    samples, rows, weights = small_problem()
    found = exhume.reconstruct(exhume.observe_features(rows, weights, "relu"))
    assert found.outcome is exhume.Outcome.RECOVERED
    assert exhume.evaluate(found, samples).signed_error < 1e-4


def test_a_module_goes_in_and_the_training_inputs_come_out() -> None:
    samples, rows, _ = small_problem()
    model = nn.Sequential(nn.Linear(12, 400, bias=False), nn.ReLU(), nn.Linear(400, 1, bias=False))
    hidden, head = model[0], model[2]
    assert isinstance(hidden, nn.Linear)
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        hidden.weight.copy_(rows)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        head.weight += torch.tensor([[1.0, -2.0, 1.5]]) @ model[:2](samples)
    observation = exhume.observe(model, initial=before)
    assert torch.allclose(observation.weights, head.weight - before["2.weight"])
    found = exhume.reconstruct(observation)
    assert exhume.evaluate(found, samples).signed_error < 1e-4
    assert exhume.observe(model, initial="zero", head="2").knowledge.initial == "zero"
    image = nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1))
    assert exhume.observe(image, input_shape=(3, 3, 3)).image_shape == (3, 3, 3)
    with pytest.raises(UsageError, match="expected the name of a linear layer, found 'fc'"):
        exhume.observe(model, head="fc")


def test_a_network_with_batch_norm_gives_its_training_inputs_away() -> None:
    """Its statistics come from the end of training, and its first layer's change is not taken for the data's span.

    They take the mean of the batch off every unit, so that only somebody who knows the norm of the rows can tell it."""
    torch.manual_seed(0)
    samples = torch.randn(4, 12)
    samples *= math.sqrt(12) / samples.norm(dim=1, keepdim=True)
    model = nn.Sequential(nn.Linear(12, 500), nn.BatchNorm1d(500), nn.ReLU(), nn.Linear(500, 1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    labels = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    descent = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(600):
        descent.zero_grad()
        (model(samples) - labels).square().sum().backward()
        descent.step()
    observation = exhume.observe(model, initial=before, norm=math.sqrt(12))
    assert observation.initial_rows is None
    found = exhume.reconstruct(observation)
    assert exhume.evaluate(found, samples).error < 0.02


def test_several_outputs_are_several_rows_of_weights() -> None:
    _, rows, weights = small_problem()
    observation = exhume.observe_features(rows, torch.stack([weights, weights.flip(0)]), "relu")
    assert observation.weights.shape == (2, 400)


def test_every_public_name_exists_and_no_other_is_offered() -> None:
    for name in exhume.__all__:
        assert getattr(exhume, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        exhume.nonsense  # noqa: B018
    assert set(dir(exhume)) == set(exhume.__all__)


def test_the_gauge_is_a_function_of_three_numbers() -> None:
    assert exhume.gauge(6000, 100, 20).ratio == 3


def test_records_are_ranked_against_an_observation_or_a_matrix() -> None:
    samples, rows, weights = small_problem()
    others = torch.randn(60, 12, generator=torch.Generator().manual_seed(1))
    others = others * math.sqrt(12) / others.norm(dim=1, keepdim=True)
    observation = exhume.observe_features(rows, weights, "relu")
    found = exhume.rank(observation, torch.cat([samples, others[:20]]), others[20:])
    assert set(found.order[:3]) == {0, 1, 2}
    start = torch.ones(1, 400)
    embeddings = observation.features(torch.cat([samples, others[:20]]))
    same = exhume.rank(weights[None] + start, embeddings, observation.features(others[20:]), initial=start)
    assert torch.allclose(same.alignment, found.alignment, atol=1e-4)


def test_numbers_that_are_no_floats_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no checker of types
    whole = torch.ones(5, 3, dtype=torch.int64)
    with pytest.raises(UsageError, match=r"expected rows in floating point, found int64; convert them"):
        exhume.observe_features(whole, torch.ones(1, 5), "relu")
    with pytest.raises(UsageError, match="expected head in floating point, found int64"):
        exhume.rank(whole, torch.ones(4, 3))
    with pytest.raises(UsageError, match="expected candidates in floating point"):
        exhume.rank(whole.float(), torch.ones(4, 3, dtype=torch.int32))


def test_python_takes_every_option_of_the_command_line() -> None:
    _, rows, weights = small_problem()
    observation = exhume.observe_features(rows, weights, "relu")
    found = exhume.reconstruct(observation, method="heavy-ball", samples=3, iterations=7, held_out=0.2)
    assert (found.iterations, found.certificate.held_out_rows) == (7, 40)  # the other half steers
    pooled = exhume.reconstruct(observation, method="heavy-ball", samples=3, iterations=7, pool=2)
    assert pooled.facts["pooled_runs"] == 2
    with pytest.raises(UsageError, match=r"found 'steps_size'"):
        exhume.reconstruct(observation, steps_size=1.0)
    with pytest.raises(
        UsageError, match=r"expected --step with --method heavy-ball, found auto, which is split-newton"
    ):
        exhume.reconstruct(observation, step=1.0)
    with pytest.raises(UsageError, match=r"expected --resolution with --prior image"):
        exhume.reconstruct(observation, resolution=4)
    with pytest.raises(UsageError, match=r"expected known samples as part of the observation"):
        exhume.reconstruct(observation, method="informed", known="known.safetensors")


def test_every_public_name_is_on_the_page_of_the_library_and_no_other() -> None:
    page = (Path(__file__).parents[1] / "docs/api.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE)
    assert sorted(named) == sorted(set(named)), "a name is there twice"
    homes = {f"{getattr(exhume, name).__module__}.{name}" for name in set(exhume.__all__) - {"__version__"}}
    assert set(named) == homes
