import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.defences.quantisation import Format, quantise
from exhume.errors import UsageError

KINDS: tuple[Format, ...] = ("fp16", "bf16", "int8", "int8-row")


def draw(seed: int, k: int = 3, p: int = 50) -> torch.Tensor:
    weights = torch.randn(k, p, generator=torch.Generator().manual_seed(seed))
    return weights * torch.tensor([1.0, 0.01, 0.001])[:k, None]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1000))
def test_rounding_twice_is_rounding_once_and_types_are_kept(kind: Format, seed: int) -> None:
    once = quantise(draw(seed), kind)
    assert once.dtype == torch.float32
    torch.testing.assert_close(quantise(once, kind), once, atol=0, rtol=1e-6)
    assert not torch.equal(once, draw(seed))


@pytest.mark.parametrize(("kind", "bits"), [("fp16", 11), ("bf16", 8)])
def test_a_float_format_keeps_its_bits_of_each_weight(kind: Format, bits: int) -> None:
    weights = draw(0)[:1]
    torch.testing.assert_close(quantise(weights, kind), weights, rtol=2.0**-bits, atol=1e-7)


def test_int8_takes_255_evenly_spaced_values_and_is_within_half_a_step() -> None:
    weights = draw(1, p=5000)
    rounded, step = quantise(weights, "int8"), float(weights.abs().max()) / 127
    assert float((rounded - weights).abs().max()) <= step / 2 * 1.001
    whole = rounded.double() / step
    torch.testing.assert_close(whole, whole.round(), atol=1e-4, rtol=0)
    assert float(whole.abs().max()) == pytest.approx(127)


def test_a_scale_for_each_output_keeps_small_outputs() -> None:
    weights = draw(2)
    whole, by_row = quantise(weights, "int8"), quantise(weights, "int8-row")
    assert torch.equal(whole[0], by_row[0])
    assert not whole[2].any()
    torch.testing.assert_close(by_row[2], weights[2], atol=float(weights[2].abs().max()) / 250, rtol=0)


def test_an_output_of_zeros_stays_zero() -> None:
    for kind in KINDS:
        assert not quantise(torch.zeros(2, 5), kind).any()


def test_weights_beyond_the_format_are_one_line() -> None:
    with pytest.raises(UsageError, match="at most 65504 to publish as fp16, found 100000"):
        quantise(torch.tensor([[1e5]]), "fp16")
    assert float(quantise(torch.tensor([[1e5]]), "bf16")) == pytest.approx(1e5, rel=0.01)
