from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exhume.activations import activation
from exhume.defences.publication import Publication
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows, HeldRows, Rows, hold
from exhume.observation import Knowledge, Observation, load_observation, save_observation

P, D = 30, 6
OBSERVATION = Observation(
    RidgeFeatures(HeldRows(torch.randn(P, D, generator=torch.Generator().manual_seed(0))), activation("relu")),
    torch.randn(2, P, generator=torch.Generator().manual_seed(1)),
    Knowledge(3),
)


@pytest.mark.parametrize("initial", [DrawnRows(7, P, D), hold(DrawnRows(7, P, D))])
def test_an_initial_first_layer_is_kept_with_its_observation(tmp_path: Path, initial: Rows) -> None:
    save_observation(replace(OBSERVATION, initial_rows=initial), tmp_path / "observation.safetensors")
    restored = load_observation(tmp_path / "observation.safetensors")
    assert restored.initial_rows is not None
    assert torch.equal(hold(restored.initial_rows).values, hold(initial).values)
    assert torch.equal(hold(restored.ridge.rows).values, hold(OBSERVATION.ridge.rows).values)


def test_a_known_subspace_is_kept_with_its_observation(tmp_path: Path) -> None:
    basis = torch.eye(D)[:, :2].contiguous()
    save_observation(replace(OBSERVATION, subspace=basis), tmp_path / "observation.safetensors")
    restored = load_observation(tmp_path / "observation.safetensors")
    assert restored.subspace is not None
    assert torch.equal(restored.subspace, basis)


def test_files_without_either_are_read_as_before(tmp_path: Path) -> None:
    save_observation(OBSERVATION, tmp_path / "observation.safetensors")
    restored = load_observation(tmp_path / "observation.safetensors")
    assert restored.initial_rows is None
    assert restored.subspace is None


def test_layers_and_subspaces_of_other_shapes_are_refused() -> None:
    with pytest.raises(ExhumeError, match=r"of shape \[30, 6\], found .* \[31, 6\]"):
        replace(OBSERVATION, initial_rows=DrawnRows(7, P + 1, D))
    with pytest.raises(ExhumeError, match=r"r <= d = 6, found shape \[5, 2\]"):
        replace(OBSERVATION, subspace=torch.ones(5, 2))
    with pytest.raises(ExhumeError, match=r"r <= d = 6, found shape \[6, 7\]"):
        replace(OBSERVATION, subspace=torch.ones(6, 7))


def test_features_that_are_pruned_take_their_initial_rows_with_them() -> None:
    initial = DrawnRows(7, P, D)
    kept = torch.arange(0, P, 3)
    published = Publication(replace(OBSERVATION, initial_rows=initial)).keeping(kept, OBSERVATION.weights[:, kept])
    rows = published.observation.initial_rows
    assert rows is not None
    assert torch.equal(hold(rows).values, hold(initial).values[kept])
