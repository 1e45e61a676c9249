import pytest
import torch

from exhume import seeds
from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset
from exhume.data.load import load
from exhume.errors import UsageError
from exhume_papers.victims.glm import GlmConfig, train_glm


def sphere(rule: str = "sign") -> Dataset:
    given = {"name": "sphere", "samples": 7, "dim": 15, "label_rule": rule, "dtype": "float64"}
    return load(DataConfig.parse(**given, seed=seeds.derive(0, "data")))


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_the_fit_is_where_the_gradient_vanishes(loss: str) -> None:
    data, penalty = sphere(), 0.02
    victim = train_glm(GlmConfig(loss=loss, penalty=penalty), data)  # type: ignore[arg-type]
    theta, labels = victim.observation.weights[0].clone().requires_grad_(), data.labels
    outputs = data.inputs @ theta[:-1] + theta[-1]
    each = (outputs - labels).square() / 2 if loss == "square" else torch.log1p(torch.exp(-labels * outputs))
    objective = each.mean() + penalty / 2 * theta[:-1].square().sum()
    slope = torch.autograd.grad(objective, theta)[0]
    assert float(slope.abs().max()) < 1e-12
    assert victim.training_loss == pytest.approx(each.mean().item())
    torch.testing.assert_close(victim.coefficients @ data.inputs, theta[:-1].detach())


def test_its_features_are_the_input_and_a_constant() -> None:
    data = sphere()
    observation = train_glm(GlmConfig(), data).observation
    expected = torch.cat([data.inputs, torch.ones(7, 1, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(observation.features(data.inputs), expected)
    assert observation.knowledge.samples == 7


def test_real_labels_are_refused_by_the_logistic_loss() -> None:
    with pytest.raises(UsageError, match=r"labels -1 and \+1"):
        train_glm(GlmConfig(loss="logistic"), sphere("linear"))
    with pytest.raises(UsageError, match="penalty"):
        GlmConfig.parse(penalty=0)
