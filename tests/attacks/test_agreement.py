import pytest
import torch
from torch import Tensor

from exhume.attacks.running.agreement import RunCandidate, agree
from exhume.errors import UsageError

D, RUNS = 30, 4


def draw(count: int, seed: int) -> Tensor:
    rows = torch.randn(count, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows * (D**0.5 / rows.norm(dim=1, keepdim=True))


def runs(noise: float = 0.15) -> tuple[Tensor, list[Tensor]]:
    """Three true rows that every run has, with noise and any sign, among four of its own."""
    truth, found = draw(3, 0), []
    for run in range(RUNS):
        signs = torch.tensor([1.0, -1.0 if run % 2 else 1.0, -1.0])
        near = signs[:, None] * truth + noise * draw(3, 10 + run)
        order = torch.randperm(7, generator=torch.Generator().manual_seed(run))
        found.append(torch.cat([near, draw(4, 20 + run)])[order])
    return truth, found


def cosine(left: Tensor, right: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(left, right, dim=0).abs())


def test_what_all_runs_found_comes_before_what_one_run_found() -> None:
    truth, found = runs()
    clusters = agree(found)
    assert [cluster.size for cluster in clusters[:4]] == [RUNS] * 3 + [1]
    assert clusters[2].agreement > 0.95 > 0.75 > clusters[3].agreement
    for cluster in clusters[:3]:
        assert max(cosine(cluster.mean, row) for row in truth) > 0.99


def test_the_mean_is_closer_than_its_members_and_keeps_their_norm() -> None:
    truth, found = runs()
    for cluster in agree(found)[:3]:
        best = max(truth, key=lambda row: cosine(cluster.mean, row))
        members = [cosine(found[member.run][member.candidate], best) for member in cluster.members]
        assert cosine(cluster.mean, best) > max(members)
        assert float(cluster.mean.norm()) == pytest.approx(D**0.5, rel=0.05)


def test_every_candidate_is_in_one_cluster_at_most_and_one_of_a_run() -> None:
    _, found = runs()
    members = [member for cluster in agree(found) for member in cluster.members]
    assert len(set(members)) == len(members)
    for cluster in agree(found):
        owners = [member.run for member in cluster.members]
        assert len(set(owners)) == len(owners)


def test_copies_within_a_run_count_once() -> None:
    rows = draw(2, 0)
    clusters = agree([torch.cat([rows, -rows])])
    assert len(clusters) == 2
    assert all(cluster.size == 1 for cluster in clusters)


def test_one_run_agrees_with_itself() -> None:
    rows = draw(3, 0)
    clusters = agree([rows])
    assert sorted(cluster.members[0] for cluster in clusters) == [
        RunCandidate(0, 0),
        RunCandidate(0, 1),
        RunCandidate(0, 2),
    ]
    assert all(cluster.agreement == pytest.approx(1) for cluster in clusters)


def test_nothing_to_pool_is_refused() -> None:
    with pytest.raises(UsageError, match="found none"):
        agree([])
    with pytest.raises(UsageError, match="between 0 and 1"):
        agree([draw(2, 0)], cosine=1.5)
