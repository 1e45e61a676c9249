"""Numbers that a refinement reads back from its device, each of which a GPU would have to wait for."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from exhume.activations import activation
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer import split_step
from exhume.attacks.single_layer.levenberg import Levenberg
from exhume.attacks.single_layer.span import SpanLoss
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, hold

READS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select")
CHOOSING = ("index", "index_put", "index_put_")
"""Where one of the places is given by a mask: how many there are has to be known."""
PRODUCTS = 10
A_FEW = 8  # the loss, the gain that was promised, whether all is finite and well conditioned


@pytest.fixture(autouse=True)
def shapes_unchecked() -> Iterator[None]:
    """Checks of shapes read numbers of their own."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def __torch_dispatch__(self, operator: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        name = operator.overloadpacket.__name__
        masked = name in CHOOSING and any(place is not None and place.dtype == torch.bool for place in arguments[1])
        self.read[name] += name in READS or masked
        return operator(*arguments, **(named or {}))

    @property
    def total(self) -> int:
        return self.read.total()


def reads(rule: Levenberg, m: int, d: int, p: int, affine: bool = False, iterations: int = 4) -> float:
    """Per iteration, of a refinement that starts beside the samples."""
    stream = torch.Generator().manual_seed(0)
    samples = to_norm(torch.randn(m, d, generator=stream), d**0.5)
    features = RidgeFeatures(hold(DrawnRows(0, p, d)), activation("relu"))
    loss = SpanLoss(features, torch.randn(1, m, generator=stream) @ features(samples)).part(p, affine)
    start = loss.fit(to_norm(samples + 0.3 * torch.randn(m, d, generator=stream), d**0.5))
    with Counting() as counting:
        done = list(rule.refine(loss, start, d**0.5, iterations))
    assert len(done) == iterations
    return counting.total / iterations


def test_what_is_counted_is_what_waits() -> None:
    waiting: list[Callable[[Tensor], object]] = [lambda x: float(x.sum()), lambda x: bool(x.all()), lambda x: x[x > 0]]
    for way in waiting:
        with Counting() as counting:
            way(torch.ones(3))
        assert counting.total == 1
    with Counting() as counting:
        (torch.ones(3) @ torch.ones(3, 3))[:2].where(torch.ones(2) > 0, 0.0)
    assert counting.total == 0


@pytest.mark.parametrize("affine", [False, True])
def test_an_iteration_of_the_dense_step_reads_two_numbers_a_product_and_a_few_more(affine: bool) -> None:
    rule = Levenberg(products=PRODUCTS, forcing=0.0)
    for size in ((4, 40, 800), (12, 60, 4000)):
        assert reads(rule, *size, affine) <= 2 * PRODUCTS + A_FEW


def test_the_split_step_does_so_too_where_momentum_does_not_overshoot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_step, "INNER_PRODUCTS", PRODUCTS)
    monkeypatch.setattr(split_step, "INNER_TOLERANCE", 0.0)
    for size in ((4, 40, 800), (12, 60, 4000)):
        assert reads(Levenberg(products=0), *size, iterations=1) <= 2 * PRODUCTS + A_FEW
