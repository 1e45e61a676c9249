"""The whitened angle between embeddings and the change of a head."""

import pytest
import torch
from torch import Tensor

from exhume.attacks.probes.alignment import RIDGES, align
from exhume.attacks.probes.embedding_span import embedding_span
from exhume.errors import UsageError
from exhume.metrics.detection import roc_auc


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def embeddings_of(count: int, features: int, seed: int = 0) -> Tensor:
    """Correlated, with a spectrum that falls, around a mean."""
    mixing = drawn(features, features, seed=99) * torch.logspace(0, -2, features, dtype=torch.float64)[:, None]
    return drawn(count, features, seed=seed) @ mixing + 3 * drawn(1, features, seed=98)


def naive_cosines(change: Tensor, embeddings: Tensor, ridge: float, constant: bool) -> Tensor:
    """The formula of the docstring, with matrices in full."""
    z = embeddings[:, :-1] if constant else embeddings
    delta = change[:, :-1] if constant else change
    mean = z.mean(dim=0)
    centred = z - mean
    features = z.shape[1]
    covariance = centred.T @ centred / len(z)
    covariance += ridge * covariance.trace() / features * torch.eye(features, dtype=z.dtype)
    inverse = torch.linalg.inv(covariance)
    share = change[:, -1] if constant else delta @ inverse @ mean / (mean @ inverse @ mean)
    rows = delta - share[:, None] * mean
    products = centred @ inverse @ rows.T
    gram = rows @ inverse @ rows.T
    return (products @ torch.linalg.inv(gram) * products).sum(dim=1) / (centred @ inverse * centred).sum(dim=1)


@pytest.mark.parametrize("records", [12, 60])
@pytest.mark.parametrize("constant", [False, True])
def test_the_angle_is_that_of_the_formula_for_few_and_for_many_records(records: int, constant: bool) -> None:
    pool = embeddings_of(records, 25)
    if constant:
        pool = torch.cat([pool, torch.ones(records, 1, dtype=torch.float64)], dim=1)
    change = drawn(8, 3, seed=2).T @ pool[:8]
    found = align(embedding_span(change), pool)
    assert found.ridge in RIDGES
    expected = naive_cosines(change, pool, found.ridge, constant)
    assert torch.allclose(found.cosine_squared, expected, atol=1e-7)


def test_the_angle_depends_neither_on_units_nor_on_axes_nor_on_how_outputs_are_mixed() -> None:
    pool = embeddings_of(40, 20)
    change = drawn(6, 2, seed=2).T @ pool[:6]
    rotation = torch.linalg.qr(drawn(20, 20, seed=3)).Q
    plain = align(embedding_span(change), pool)
    turned = align(embedding_span(drawn(2, 2, seed=4) @ change @ rotation), 7.0 * pool @ rotation)
    assert plain.ridge == turned.ridge
    assert torch.allclose(plain.cosine_squared, turned.cosine_squared, atol=1e-9)


def test_the_order_of_the_records_does_not_matter() -> None:
    pool = embeddings_of(30, 20)
    span = embedding_span(drawn(6, 2, seed=2).T @ pool[:6])
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(align(span, pool[order]).score, align(span, pool).score[order], atol=1e-9)


def test_training_records_stand_out_where_the_plain_distance_to_the_span_is_blind() -> None:
    features, samples = 100, 30
    trained, others = embeddings_of(samples, features, seed=1), embeddings_of(400, features, seed=2)
    span = embedding_span(drawn(samples, 5, seed=3).T @ trained)
    pool = torch.cat([trained[:10], others])
    aligned, plain = align(span, pool).score, span.share(pool)
    assert roc_auc(aligned[:10], aligned[10:]) > 0.9
    assert roc_auc(plain[:10], plain[10:]) < 0.75


def test_records_that_hold_all_training_data_and_fewer_than_features_are_told_exactly() -> None:
    """One output is then a linear regression without noise."""
    trained, others = embeddings_of(10, 80, seed=1), embeddings_of(30, 80, seed=2)
    scores = align(embedding_span(drawn(10, 1, seed=3).T @ trained), torch.cat([trained, others])).score
    assert float(scores[:10].min()) > 10 * float(scores[10:].max())


def test_white_noise_on_the_weights_raises_the_ridge() -> None:
    pool = embeddings_of(60, 40)
    change = drawn(40, 4, seed=2).T @ pool[:40]
    noisy = change + 0.5 * change.std() * drawn(4, 40, seed=5)
    assert align(embedding_span(noisy), pool).ridge > align(embedding_span(change), pool).ridge


def test_records_that_are_all_the_same_are_at_no_angle_and_two_are_too_few() -> None:
    span = embedding_span(drawn(2, 5))
    assert not align(span, torch.ones(4, 5)).cosine_squared.any()
    with pytest.raises(UsageError, match="at least 3 records"):
        align(span, drawn(2, 5))
