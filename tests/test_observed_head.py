"""The published head beside its change."""

from pathlib import Path

import pytest
import torch

from exhume.activations import activation
from exhume.defences.kinds import parse_defences, publish
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.files import read_tensors, write_tensors
from exhume.observation import KIND, Knowledge, Observation, load_observation, save_observation

START = torch.full((2, 12), 0.5)
HEAD = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))


def observed(head: torch.Tensor | None = HEAD) -> Observation:
    features = RidgeFeatures(DrawnRows(0, 12, 5), activation("relu"))
    return Observation(features, HEAD - START, Knowledge(initial="known"), head=head)


def test_a_head_comes_back_from_the_file_and_is_absent_where_nobody_kept_it(tmp_path: Path) -> None:
    for name, observation in (("a", observed()), ("b", observed(None))):
        save_observation(observation, tmp_path / name)
    head = load_observation(tmp_path / "a").published_head
    assert head is not None
    assert torch.equal(head, HEAD)
    assert load_observation(tmp_path / "b").published_head is None


def test_weights_without_a_known_start_are_the_head_itself() -> None:
    features = RidgeFeatures(DrawnRows(0, 12, 5), activation("relu"))
    for initial in ("zero", "distribution"):
        assert Observation(features, HEAD, Knowledge(initial=initial)).published_head is HEAD


@pytest.mark.parametrize("defence", ["int8", "prune50", "noise0.1"])
def test_a_defence_changes_the_published_head_and_its_change_alike(defence: str) -> None:
    shown = publish(observed(), parse_defences(defence), initial=START)
    head = shown.published_head
    assert head is not None
    assert torch.allclose(head, shown.weights + 0.5, atol=1e-6)
    assert head.shape != HEAD.shape or not torch.equal(head, HEAD)


def test_a_head_of_another_shape_than_its_change_is_one_line(tmp_path: Path) -> None:
    save_observation(observed(), tmp_path / "a")
    file = read_tensors(tmp_path / "a", KIND)
    meta = {name: value for name, value in file.meta.items() if name not in ("kind", "schema")}
    write_tensors(tmp_path / "a", KIND, {**file.tensors, "head": torch.ones(1, 12)}, meta)
    with pytest.raises(ExhumeError, match=r"head of the shape of its change .* found \[2, 12\] and \[1, 12\]"):
        load_observation(tmp_path / "a")
