import pytest
import torch

from exhume.activations import activation
from exhume.defences.publication import Publication
from exhume.errors import ExhumeError
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import DrawnRows
from exhume.features.selected_rows import SelectedRows
from exhume.observation import Knowledge, Observation

P, D = 20, 4


def observation(bias: bool = False) -> Observation:
    stream = torch.Generator().manual_seed(0)
    b = torch.randn(P, generator=stream) if bias else None
    features = RidgeFeatures(DrawnRows(1, P, D), activation("relu"), b)
    return Observation(features, torch.randn(2, P, generator=stream), Knowledge(samples=3, norm=2.0), (1, 2, 2))


def test_the_head_is_the_start_and_the_change() -> None:
    seen, start = observation(), torch.randn(2, P)
    owned = Publication(seen, initial=start)
    torch.testing.assert_close(owned.head, start + seen.weights)
    torch.testing.assert_close(owned.with_head(owned.head * 2).observation.weights, start + 2 * seen.weights)
    assert torch.equal(Publication(seen).head, seen.weights)


@pytest.mark.parametrize("bias", [False, True])
def test_kept_features_are_the_same_features(bias: bool) -> None:
    seen, start, inputs = observation(bias), torch.randn(2, P), torch.randn(5, D)
    owned = Publication(seen, inputs, start)
    first, second = torch.tensor([1, 4, 5, 9, 17]), torch.tensor([0, 2, 4])
    for left, kept in (
        (owned.keeping(first, owned.head[:, first]), first),
        (owned.keeping(first, owned.head[:, first]).keeping(second, owned.head[:, first[second]]), first[second]),
    ):
        torch.testing.assert_close(left.observation.features(inputs), seen.features(inputs)[:, kept])
        torch.testing.assert_close(left.observation.weights, seen.weights[:, kept])
        torch.testing.assert_close(left.head, owned.head[:, kept])
        assert (left.observation.knowledge, left.observation.image_shape) == (seen.knowledge, seen.image_shape)
        features = left.observation.features
        assert isinstance(features, RidgeFeatures)
        assert isinstance(features.rows, SelectedRows)
        assert isinstance(features.rows.whole, DrawnRows)  # one selection, however often features were removed


def test_features_of_a_network_are_kept_likewise() -> None:
    inputs, map_of = torch.randn(5, D), torch.randn(D, P)
    features = ModuleFeatures(lambda rows: (rows @ map_of).tanh(), D, P)
    seen = Observation(features, torch.randn(2, P), Knowledge())
    kept = torch.tensor([3, 8, 11])
    left = Publication(seen).keeping(kept, seen.weights[:, kept]).observation
    torch.testing.assert_close(left.features(inputs), features(inputs)[:, kept])


def test_what_does_not_fit_is_one_line() -> None:
    with pytest.raises(ExhumeError, match="initial head of shape"):
        Publication(observation(), initial=torch.zeros(1, P))
    with pytest.raises(ExhumeError, match="training inputs of d = 4"):
        Publication(observation(), inputs=torch.zeros(3, 5))
    with pytest.raises(ExhumeError, match="finite weights"):
        Publication(observation()).with_head(observation().weights * float("nan"))
