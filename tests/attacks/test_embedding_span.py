"""The span of training embeddings that a head shows."""

import math

import pytest
import torch
from torch import Tensor

from exhume.attacks.probes.embedding_span import embedding_span
from exhume.errors import ExhumeError


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "k", "rank"), [(4, 7, 4), (9, 5, 5), (1, 3, 1)])
def test_rank_is_the_smaller_of_samples_and_outputs(n: int, k: int, rank: int) -> None:
    change = drawn(n, k).T @ drawn(n, 40, seed=1)
    span = embedding_span(change)
    assert span.rank == rank
    assert torch.allclose(span.basis @ span.basis.T, torch.eye(rank, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(change @ span.basis.T @ span.basis, change, atol=1e-10)


def test_rounding_in_float32_does_not_raise_the_rank_and_the_gap_is_told() -> None:
    change = (drawn(3, 8).T @ drawn(3, 50, seed=1)).float()
    span = embedding_span(change)
    assert span.rank == 3
    assert span.gap > 1e4
    assert math.isinf(embedding_span(drawn(2, 9)).gap)


def test_a_wide_spectrum_without_an_edge_keeps_every_direction() -> None:
    assert embedding_span(torch.diag(torch.tensor([1.0, 0.02, 0.01]))).rank == 3


def test_gradients_of_cross_entropy_sum_to_zero_over_the_outputs_and_lose_one_rank() -> None:
    errors = torch.softmax(drawn(20, 4), dim=1) - torch.eye(4, dtype=torch.float64)[torch.arange(20) % 4]
    assert embedding_span(errors.T @ drawn(20, 30, seed=1)).rank == 3


def test_training_embeddings_lie_in_a_complete_span_and_others_do_not() -> None:
    embeddings = drawn(3, 40)
    span = embedding_span(drawn(3, 5, seed=1).T @ embeddings)
    assert torch.allclose(span.share(embeddings), torch.ones(3, dtype=torch.float64))
    assert float(span.share(drawn(50, 40, seed=2)).max()) < 0.5
    part = embedding_span(drawn(3, 2, seed=1).T @ embeddings)
    assert float(part.share(embeddings).min()) < 0.9, "two outputs show two of three dimensions"


def test_other_embeddings_in_the_span_explain_the_weights_as_well() -> None:
    """Why single embeddings are not determined."""
    embeddings, coefficients, mixing = drawn(4, 20), drawn(4, 2, seed=1), drawn(4, 4, seed=2)
    others = mixing @ embeddings
    theirs = torch.linalg.inv(mixing).T @ coefficients
    assert torch.allclose(theirs.T @ others, coefficients.T @ embeddings)
    assert float((others - embeddings).abs().min(dim=1).values.max()) > 0
    assert torch.nn.functional.cosine_similarity(others, embeddings).abs().max() < 0.95


def test_a_head_that_never_moved_and_broken_numbers_are_refused() -> None:
    with pytest.raises(ExhumeError, match="no change of its weights"):
        embedding_span(torch.zeros(2, 3))
    with pytest.raises(ExhumeError, match="finite change"):
        embedding_span(torch.tensor([[1.0, torch.nan]]))
