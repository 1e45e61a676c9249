import torch
from torch import Tensor

from exhume.attacks.foundation.parametrisation import LoweredRows, Parametrisation, Subspace
from exhume.attacks.subspace.drift import DriftCoordinates, drifted_rows
from exhume.features.mixed_rows import MixedRows
from exhume.features.rows import HeldRows, hold

H, D, R = 30, 9, 3


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SUBSPACE = Subspace.spanned_by(normal(D, R))
COORDINATES = DriftCoordinates(SUBSPACE)


def test_a_sample_is_carried_there_and_back() -> None:
    samples = SUBSPACE.lift(normal(4, R, seed=1))
    lowered = COORDINATES.lower(samples)
    assert lowered.shape == (4, 2 * R)
    torch.testing.assert_close(COORDINATES.lift(lowered), samples)
    assert isinstance(COORDINATES, Parametrisation)


def test_the_second_half_changes_the_features_and_neither_the_sample_nor_its_norm() -> None:
    pair = normal(4, 2 * R, seed=2)
    lifted = COORDINATES.lift(pair)
    torch.testing.assert_close(lifted.norm(dim=1), pair.norm(dim=1))
    alone = SUBSPACE.lift(pair[:, :R])
    torch.testing.assert_close(torch.cosine_similarity(lifted, alone), torch.ones(4, dtype=torch.float64))


def test_preactivations_are_those_of_a_layer_that_moved_by_as_much_as_the_pair_says() -> None:
    initial, change = HeldRows(normal(H, D, seed=3)), HeldRows(1e-3 * normal(H, D, seed=4))
    trained = HeldRows(initial.values + change.values)
    halfway = hold(LoweredRows(MixedRows(trained, 0.5, initial, 0.5), SUBSPACE, torch.float64), dtype=torch.float64)
    rows = drifted_rows(halfway.values, MixedRows(trained, 1.0, initial, -1.0), SUBSPACE).values
    first, second = rows[:, :R], rows[:, R:]
    torch.testing.assert_close(first.norm(), second.norm())
    # τ of the way instead of half of it: b = (τ − 1/2) z
    z = normal(R, seed=5)
    scale = float(second.norm() / (change.values @ SUBSPACE.basis).norm())
    for share in (0.0, 0.4, 1.0):
        there = (initial.values + share * change.values) @ SUBSPACE.lift(z[None])[0]
        torch.testing.assert_close(rows @ torch.cat([z, (share - 0.5) / scale * z]), there)
