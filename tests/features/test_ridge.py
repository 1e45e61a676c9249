import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.activations import ACTIVATIONS, activation
from exhume.features import rows as rows_module
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, hold

P, D, M = 613, 7, 4


class SmallBlocks(HeldRows):
    """Held rows that are read a few at a time."""

    @property
    def block_rows(self) -> int:
        return 17


def drawn_inputs(dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(M, D, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2


def drawn_bias() -> Tensor:
    return torch.randn(P, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def ridge(name: str, *, with_bias: bool, dtype: torch.dtype = torch.float64) -> RidgeFeatures:
    rows = SmallBlocks(hold(DrawnRows(1, P, D), dtype=dtype).values)
    return RidgeFeatures(rows, activation(name), drawn_bias().to(dtype) if with_bias else None)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS.names())
def test_blocks_put_together_are_the_dense_formula(name: str, with_bias: bool) -> None:
    features = ridge(name, with_bias=with_bias)
    inputs = drawn_inputs()
    dense = inputs @ DrawnRows(1, P, D).block(0, P).double().T + (drawn_bias() if with_bias else 0)
    pieces = list(features.feature_blocks(inputs))
    assert len(pieces) == -(-P // 17)
    torch.testing.assert_close(torch.cat([values for _, values in pieces], dim=1), activation(name).value(dense))
    torch.testing.assert_close(features(inputs), activation(name).value(dense))
    preactivations = torch.cat([values for _, values in features.preactivation_blocks(inputs)], dim=1)
    torch.testing.assert_close(preactivations, dense)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_have_the_precision_of_the_inputs_whatever_the_rows_have(dtype: torch.dtype) -> None:
    inputs = drawn_inputs(dtype)
    other = torch.float64 if dtype == torch.float32 else torch.float32
    features = ridge("gelu", with_bias=True, dtype=other)
    assert features(inputs).dtype == dtype
    torch.testing.assert_close(
        features(inputs), ridge("gelu", with_bias=True, dtype=dtype)(inputs), atol=1e-5, rtol=1e-5
    )


def test_pull_back_is_the_product_with_the_rows() -> None:
    features = ridge("relu", with_bias=True)
    weighing = torch.randn(M, P, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    pulled = features.pull_back(lambda block: weighing[:, block], M, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(pulled, weighing @ DrawnRows(1, P, D).block(0, P).double())


@given(st.tuples(st.integers(0, P), st.integers(0, P)).map(sorted), st.booleans())
def test_a_part_is_the_slice_of_the_features(cut: list[int], with_bias: bool) -> None:
    start, stop = cut
    features, inputs = ridge("tanh", with_bias=with_bias), drawn_inputs()
    part = features.part(start, stop)
    assert (part.p, part.d) == (stop - start, D)
    torch.testing.assert_close(part(inputs), features(inputs)[:, start:stop])


@settings(max_examples=15)
@given(st.integers(1, 2 * P))
def test_the_size_of_the_blocks_does_not_matter(size: int) -> None:
    class Blocks(HeldRows):
        @property
        def block_rows(self) -> int:
            return size

    inputs = drawn_inputs()
    features = RidgeFeatures(
        Blocks(hold(DrawnRows(1, P, D), dtype=torch.float64).values), activation("gelu"), drawn_bias()
    )
    reference = ridge("gelu", with_bias=True)
    torch.testing.assert_close(features(inputs), reference(inputs), atol=1e-13, rtol=1e-13)
    weighing = torch.randn(M, P, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    arguments = (lambda block: weighing[:, block], M, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(features.pull_back(*arguments), reference.pull_back(*arguments), atol=1e-12, rtol=1e-12)


def test_drawn_rows_in_several_blocks_give_the_features_of_held_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 256 * D * 4)
    inputs = drawn_inputs()
    drawn = RidgeFeatures(DrawnRows(1, P, D), activation("relu+tanh"))
    assert len(list(drawn.feature_blocks(inputs))) == 3
    torch.testing.assert_close(drawn(inputs), ridge("relu+tanh", with_bias=False)(inputs))


def test_inputs_are_left_as_they_were() -> None:
    inputs = drawn_inputs()
    before = inputs.clone()
    ridge("relu", with_bias=True)(inputs)
    assert torch.equal(inputs, before)
