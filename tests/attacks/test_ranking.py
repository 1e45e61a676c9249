"""Records ranked against a head."""

import pytest
import torch
from torch import Tensor, nn

from exhume.activations import activation
from exhume.attacks.probes.ranking import Probe, Ranking, rank_records
from exhume.errors import ExhumeError, UsageError
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.metrics.detection import roc_auc
from exhume.observation import Knowledge, Observation

FEATURES, OUTPUTS, SAMPLES = 100, 4, 25


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def embeddings_of(count: int, seed: int) -> Tensor:
    mixing = drawn(FEATURES, FEATURES, seed=99) * torch.logspace(0, -1.5, FEATURES, dtype=torch.float64)[:, None]
    return drawn(count, FEATURES, seed=seed) @ mixing + 2 * drawn(1, FEATURES, seed=98)


def head_after(steps: int | None, embeddings: Tensor, seed: int = 5) -> Tensor:
    """Gradient descent from zero on one-hot targets; None: to the end."""
    targets = torch.eye(OUTPUTS, dtype=torch.float64)[torch.arange(len(embeddings)) % OUTPUTS]
    kernel = embeddings @ embeddings.T
    if steps is None:
        return torch.linalg.solve(kernel, targets).T @ embeddings
    head, rate = torch.zeros(OUTPUTS, FEATURES, dtype=torch.float64), 1 / torch.linalg.eigvalsh(kernel)[-1]
    for _ in range(steps):
        head = head - rate * (embeddings @ head.T - targets).T @ embeddings
    return head


def auc(ranking: Ranking, members: int) -> float:
    return roc_auc(ranking.score[:members], torch.cat([ranking.score[members:], ranking.non_member_score]))


@pytest.mark.parametrize("steps", [50, None])
def test_training_records_come_first_early_in_training_and_after_interpolation(steps: int | None) -> None:
    trained, others = embeddings_of(SAMPLES, 1), embeddings_of(300, 2)
    head = head_after(steps, trained)
    found = rank_records(Probe(head, head), torch.cat([trained[:8], others[:40]]), others[40:], "square")
    assert auc(found, 8) > 0.9
    assert len(set(found.order[:4]) & set(range(8))) >= 3
    assert found.resolution == pytest.approx(1 / 261)
    assert found.p_value is not None
    assert found.q_value is not None
    assert float(found.p_value.min()) == pytest.approx(1 / 261)
    assert bool((found.q_value >= found.p_value).all())


def test_interpolation_is_seen_by_the_fit_where_the_alignment_is_weak() -> None:
    trained, others = embeddings_of(90, 1), embeddings_of(200, 2)
    head = head_after(None, trained)
    records = torch.cat([trained[:8], others[:40]])
    assert auc(rank_records(Probe(head, head), records, others[40:], "square"), 8) == 1.0
    assert auc(rank_records(Probe(head, head), records, others[40:]), 8) < 0.95


def test_p_values_of_records_that_were_not_trained_on_are_uniform() -> None:
    small = []
    for seed in range(20):
        trained, others = embeddings_of(SAMPLES, 1000 + seed), embeddings_of(59, 2000 + seed)
        head = head_after(20, trained)
        found = rank_records(Probe(head, head), others[:20], others[20:], "square")
        assert found.p_value is not None
        small.append(found.p_value <= 0.1)
    share = float(torch.cat(small).double().mean())
    assert abs(share - 0.1) < 0.05


def test_without_non_members_there_is_an_order_and_no_p_value() -> None:
    trained, others = embeddings_of(SAMPLES, 1), embeddings_of(100, 2)
    head = head_after(20, trained)
    found = rank_records(Probe(head), torch.cat([trained[:5], others]))
    assert (found.p_value, found.q_value, found.resolution, found.fit) == (None, None, None, None)
    assert roc_auc(found.score[:5], found.score[5:]) > 0.8


def test_a_probe_takes_inputs_of_its_extractor_or_embeddings_with_and_without_the_constant() -> None:
    features = RidgeFeatures(DrawnRows(0, 12, 5), activation("relu"))
    probe = Probe.of(Observation(features, torch.ones(2, 12), Knowledge()))
    inputs = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(probe.embed(inputs, "x"), features(inputs).double())
    assert torch.equal(probe.embed(torch.ones(3, 12), "x"), torch.ones(3, 12, dtype=torch.float64))
    with pytest.raises(UsageError, match="inputs of 5 numbers or embeddings of 12 numbers in x, found 7"):
        probe.embed(torch.ones(3, 7), "x")
    with_bias = Probe(torch.ones(2, 4), constant=True)
    assert torch.equal(with_bias.embed(torch.zeros(2, 3), "x")[:, -1], torch.ones(2, dtype=torch.float64))
    with pytest.raises(ExhumeError, match="finite numbers in x"):
        probe.embed(torch.full((1, 5), torch.nan), "x")


def test_the_published_head_comes_with_the_observation_and_a_known_start_hides_it_otherwise() -> None:
    network = nn.Linear(4, 3)
    features = ModuleFeatures(network, 4, 3, constant=True)
    change, head = torch.ones(1, 3), torch.full((1, 3), 2.0)
    assert Probe.of(Observation(features, change, Knowledge(initial="known"))).head is None
    assert Probe.of(Observation(features, change, Knowledge(initial="known"), head=head)).head is head
    assert Probe.of(Observation(features, change, Knowledge(initial="zero"))).head is change
    assert Probe.of(Observation(features, change, Knowledge())).constant


def test_requests_that_cannot_be_met_are_refused() -> None:
    probe = Probe(torch.ones(1, FEATURES))
    rows = embeddings_of(5, 1)
    with pytest.raises(UsageError, match="at least one record"):
        rank_records(probe, rows[:0], rows)
    with pytest.raises(UsageError, match="at least 2 non-members"):
        rank_records(probe, rows, rows[:1])
    with pytest.raises(UsageError, match="embeddings of 100 numbers in the non-members, found 99"):
        rank_records(probe, rows, rows[:, 1:])
