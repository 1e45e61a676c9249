"""Patches put together again, in any order, with distractors and blank areas."""

import itertools

import pytest
import torch
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.silent.assembling import assemble, overlaps
from exhume.attacks.silent.whole_inputs import whole_inputs
from exhume.errors import UsageError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.layer_states import LayerStates
from exhume.observation import Knowledge, Observation
from exhume.readings import Patches
from exhume.reconstruction import Certificate, Outcome, Reconstruction

GEOMETRY = Patches((3, 12, 12), (6, 6), (3, 3))


def shuffled(images: Tensor, geometry: Patches, seed: int = 0) -> Tensor:
    pieces = geometry(images.flatten(1)).flatten(0, 1)
    stream = torch.Generator().manual_seed(seed)
    noise = 1e-5 * torch.randn(pieces.shape, generator=stream)
    return (pieces + noise)[torch.randperm(len(pieces), generator=stream)]


def images(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "geometry", [GEOMETRY, Patches((3, 12, 12), (6, 4), (4, 3), (1, 2)), Patches((3, 12, 12), (12, 4), (12, 2))]
)
def test_images_come_together(geometry: Patches) -> None:
    true = images(4)
    found = assemble(shuffled(true, geometry), geometry)
    assert (len(found.images), found.left) == (4, ())
    mask = torch.nn.functional.fold(
        geometry(torch.ones(1, 432)).transpose(1, 2), (12, 12), geometry.kernel, 1, geometry.padding, geometry.stride
    )
    seen = (mask > 0).flatten()
    assert found.unseen == int((~seen).sum())
    apart = torch.cdist(true.flatten(1)[:, seen].double(), found.images[:, seen])
    assert float(apart.amin(dim=1).max()) < 1e-3


def test_a_missing_patch_leaves_one_image_in_pieces() -> None:
    true = images(3)
    pieces = GEOMETRY(true.flatten(1)).flatten(0, 1)[1:]
    found = assemble(pieces, GEOMETRY)
    assert len(found.images) == 2
    assert len(found.left) == GEOMETRY.pieces - 1


def test_blank_areas_are_not_guessed() -> None:
    """Two images with the same frame: their middles could be exchanged."""
    true = torch.zeros(2, 1, 9, 9)
    true[0, 0, 4, 4], true[1, 0, 4, 4] = 1.0, 2.0
    geometry = Patches((1, 9, 9), (3, 3), (2, 2))
    found = assemble(torch.unique(geometry(true.flatten(1)).flatten(0, 1), dim=0), geometry)
    assert len(found.images) == 0


def test_neighbours_agree_as_a_loop_over_pairs_says() -> None:
    pieces = GEOMETRY(images(2).flatten(1)).flatten(0, 1)
    blocks = pieces.reshape(-1, 3, 6, 6)
    rows, columns = GEOMETRY.grid
    for (a, first), (b, second) in itertools.permutations(enumerate(blocks), 2):
        agree = torch.equal(first[:, :, 3:], second[:, :, :3])
        assert agree == (b == a + 1 and b % columns != 0)
    assert rows == columns == 3


def test_patches_that_do_not_overlap_are_refused() -> None:
    apart = Patches((3, 12, 12), (6, 6), (6, 6))
    assert not overlaps(apart)
    with pytest.raises(UsageError, match="expected patches that overlap"):
        assemble(torch.zeros(4, 108), apart)


def test_nothing_makes_nothing() -> None:
    found = assemble(torch.zeros(0, 108), GEOMETRY)
    assert found.images.shape == (0, 432)


@pytest.mark.parametrize(
    ("n", "note"), [(1, "2 of 2 patches overlap into 1 image"), (2, "3 of 3 patches overlap into 2 images")]
)
def test_a_patch_of_two_images_is_counted_once(n: int, note: str) -> None:
    """Images that differ in their first two columns only, which the right one of two patches does not see."""
    geometry = Patches((1, 4, 6), (4, 4), (4, 2))
    true = images(1)[:, :1, :4, :6].repeat(n, 1, 1, 1)
    true[:, :, :, :2] = images(n, seed=1)[:, :1, :4, :2]
    pieces = torch.unique(geometry(true.flatten(1)).flatten(0, 1), dim=0)
    layer = LayerStates("0", torch.ones(2, 16), (torch.ones(2, 16),), bias=False, reading=geometry)
    features = RidgeFeatures(DrawnRows(1, 5, 24), activation("relu"))
    observation = Observation(features, torch.ones(1, 5), Knowledge(), layers=(layer,))
    certificate = Certificate(Outcome.RECOVERED, None, 0, (1.0,) * len(pieces))
    facts = {"layer": "0", "reads": "patches of the inputs", "directions_only": False}
    found = whole_inputs(
        Reconstruction(
            pieces, torch.ones(len(pieces), 1), "silent-units", certificate, 0.0, 1, 1.0, 1.0, 1.0, 0, facts=facts
        ),
        observation,
    )
    assert found.facts["subspace"] == note
    assert (found.facts["reads"], found.facts["inputs_made"]) == ("inputs", n)
    assert found.facts["pieces_trusted"] == len(pieces) == n + 1
