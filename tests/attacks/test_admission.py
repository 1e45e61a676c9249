"""Features that would fool a certificate are refused; directions that are hardly seen widen the error to expect."""

import math

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.running.loop import run_attack
from exhume.attacks.single_layer.admission import check_features
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observation import Knowledge, Observation


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def features(rows: Tensor, name: str, bias: Tensor | None = None) -> RidgeFeatures:
    return RidgeFeatures(HeldRows(rows), activation(name), bias)


@pytest.mark.parametrize(
    ("name", "factor", "same"),
    [
        ("relu", 1.0, True),
        ("relu", 0.37, True),
        ("relu", -1.0, False),
        ("tanh", -1.0, True),
        ("tanh", 0.37, False),
        ("gelu", 0.37, False),
        ("gelu", -1.0, False),
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_rows_that_give_the_same_equation_are_refused(name: str, factor: float, same: bool, biased: bool) -> None:
    rows, bias = normal(200, 8), normal(200, seed=1) if biased else None
    rows[-1] = factor * rows[3]
    if bias is not None:
        bias[-1] = factor * bias[3]
    if same:
        with pytest.raises(ExhumeError, match="1 rows of V that occur again"):
            check_features(features(rows, name, bias))
    else:
        check_features(features(rows, name, bias))


def test_rows_that_differ_in_their_bias_alone_are_not_the_same() -> None:
    rows, bias = normal(200, 8), normal(200, seed=1)
    rows[-1] = rows[3]
    check_features(features(rows, "relu", bias))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_many_rows_in_few_dimensions_pass(d: int) -> None:
    check_features(features(normal(5000, d), "relu"))


@pytest.mark.usefixtures("shapes_unchecked")
def test_noise_is_known_to_hurt_more_where_the_rows_hardly_look() -> None:
    """Half of the directions are hardly seen, so the same noise moves candidates farther: none is trusted."""
    d, n, p, noise = 16, 2, 1500, 0.05
    scale = torch.tensor([1.0] * (d // 2) + [0.03] * (d // 2))
    samples = normal(n, d, seed=3)
    samples *= math.sqrt(d) / samples.norm(dim=1, keepdim=True)
    trusted = {}
    for name, rows in (("even", normal(p, d, seed=4)), ("uneven", normal(p, d, seed=4) * scale)):
        seen = features(rows / math.sqrt(d), "relu")
        weights = torch.tensor([[1.0, -0.8]]) @ seen(samples)
        weights = weights + noise * weights.std() * normal(1, p, seed=5)
        told = Observation(seen, weights, Knowledge(samples=n, norm=math.sqrt(d)))
        found = run_attack(told, SplitNewton(iterations=400), seed=0).reconstruction
        near = torch.minimum(torch.cdist(found.candidates, samples), torch.cdist(found.candidates, -samples))
        wrong = near.min(dim=1).values > 0.1 * math.sqrt(d)
        called = torch.tensor(found.certificate.confidence) >= 0.5
        assert not (called & wrong).any()
        trusted[name] = int(called.sum()), int(wrong.sum())
    assert trusted == {"even": (2, 0), "uneven": (0, 2)}
