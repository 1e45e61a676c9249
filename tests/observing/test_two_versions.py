"""What two versions of a ridge model tell of a record between them."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor

import exhume as library
from exhume.activations import activation
from exhume.errors import ExhumeError, UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observation import Knowledge, Observation
from exhume.observing.two_versions import between_versions

Command = Callable[..., subprocess.CompletedProcess[str]]
RECORDS, PENALTY = 600, 60.0


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    rows, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return torch.from_numpy(rows / 16)[order], torch.from_numpy(labels)[order]


def some_rows(features: int) -> Tensor:
    return torch.randn(features, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 8


def ridge(features: RidgeFeatures, rows: Tensor, labels: Tensor) -> Tensor:
    values, targets = features(rows), torch.nn.functional.one_hot(labels, 10).double()
    kernel = values @ values.T + PENALTY * torch.eye(len(values), dtype=torch.float64)
    return (values.T @ torch.linalg.solve(kernel, targets)).T.contiguous()


def test_the_second_moments_turn_the_change_into_the_features_of_the_record(digits: tuple[Tensor, Tensor]) -> None:
    """With the training records themselves as public ones, and few features, H is exact and so is the rest."""
    rows, labels = digits[0][:RECORDS], digits[1][:RECORDS]
    features = RidgeFeatures(HeldRows(some_rows(50)), activation("relu"))
    old, new = ridge(features, rows, labels), ridge(features, rows[1:], labels[1:])
    found = between_versions(features, old, new, rows)
    assert found.dimensions == 1
    own = features(rows[:1])
    second = features(rows).T @ features(rows) + PENALTY * torch.eye(50, dtype=torch.float64)
    turned = (new - old) @ second
    assert torch.allclose(turned / turned.norm(dim=1, keepdim=True), turned.sign()[:, :1] * own / own.norm(), atol=1e-6)
    # the penalty is chosen by likelihood, so that the target is the record's features up to that choice
    cosine = torch.nn.functional.cosine_similarity(found.features(rows[:1].float()), found.weights)
    assert abs(float(cosine)) > 0.97
    assert PENALTY / RECORDS / 30 < found.penalty < 30 * PENALTY / RECORDS


@pytest.mark.parametrize("added", [False, True])
def test_a_record_that_was_deleted_or_added_comes_back(digits: tuple[Tensor, Tensor], added: bool) -> None:
    rows, labels = digits
    features = RidgeFeatures(HeldRows(some_rows(4096)), activation("relu"))
    old, new = (ridge(features, rows[at:RECORDS], labels[at:RECORDS]) for at in ((1, 0) if added else (0, 1)))
    found = between_versions(features, old, new, rows[RECORDS:])
    assert found.dimensions == 1
    seen = Observation(found.features, found.weights, Knowledge())
    recovered = library.reconstruct(seen, method="module-newton", samples=1).candidates.double()
    assert float(torch.nn.functional.cosine_similarity(recovered, rows[:1])[0]) > 0.99


@pytest.mark.usefixtures("shapes_unchecked")
def test_versions_that_tell_nothing_are_refused(digits: tuple[Tensor, Tensor]) -> None:
    rows = digits[0]
    features = RidgeFeatures(HeldRows(some_rows(50)), activation("relu"))
    weights = torch.ones(2, 50, dtype=torch.float64)
    with pytest.raises(ExhumeError, match="same weights twice"):
        between_versions(features, weights, weights, rows)
    with pytest.raises(ExhumeError, match="two versions of one shape"):
        between_versions(features, weights[:1], weights, rows)
    with pytest.raises(UsageError, match="at least 20 public records, found 3"):
        between_versions(features, weights, 2 * weights, rows[:3])


@pytest.mark.usefixtures("shapes_unchecked")
def test_an_audit_of_two_versions_counts_the_deleted_record(
    exhume: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: tuple[Tensor, Tensor]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, labels = digits
    features = RidgeFeatures(HeldRows(some_rows(1500)), activation("relu"))
    save_file({"V": some_rows(1500).float()}, "V.safetensors")
    for name, first in (("old", 0), ("new", 1)):
        save_file({"weight": ridge(features, rows[first:RECORDS], labels[first:RECORDS])}, f"{name}.safetensors")
    for name, part in (("deleted", slice(0, 1)), ("public", slice(RECORDS, None))):
        save_file({"inputs": rows[part].float()}, f"{name}.safetensors")
    files = ("new.safetensors", "--features", "V.safetensors", "--activation", "relu", "--against", "old.safetensors")
    records = ("--public", "public.safetensors", "--truth", "deleted.safetensors", "--control", "public.safetensors")
    done = exhume("audit", *files, *records, "--samples", "1", "--budget", "20s", "--out", "audit")
    assert done.returncode == 0, done.stderr
    assert "1 of 10 possible dimensions: one record was changed" in done.stdout
    assert "1 of 1 training sample" in done.stdout
    page = (tmp_path / "audit" / "report.html").read_text()
    assert "What an attacker needs: both versions" in page
    prior = f"{len(rows) - RECORDS:,} records of the same kind"
    assert f"A prior on the data ({prior})" in page
    assert f"or another one than was used ({prior})" in page
    assert "The weights of the last layer before training (an older version)" in page
    assert "Publish no version that differs from another one by a few records." in page
    assert "--what-if" not in page
    assert "in the training data" not in page
    for extra, complaint in (
        (("--initial", "zero"), "--against or a start"),
        (("--what-if", "int8"), "no --what-if with two versions"),
    ):
        refused = exhume("audit", *files, *records, *extra, "--out", "other")
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert complaint in refused.stderr
    refused = exhume("audit", *files, "--out", "other")
    assert "expected --public DATA" in refused.stderr
