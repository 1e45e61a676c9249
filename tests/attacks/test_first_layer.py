import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.attacks.foundation.spectrum import Spectrum
from exhume.attacks.subspace.first_layer import first_layer_note, first_layer_spectrum
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.errors import ExhumeError
from exhume.features.rows import DrawnRows, HeldRows, hold
from exhume_papers.victims.recipe import DescentRecipe
from exhume_papers.victims.two_layer import TwoLayerConfig, train_two_layer

H, D, N = 90, 40, 5


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(scale: float, n: int = N, h: int = H, weakest: float = 1.0) -> tuple[HeldRows, DrawnRows, Tensor]:
    """A layer that moved by a combination of n samples, in float32."""
    initial, samples = DrawnRows(5, h, D), normal(n, D)
    coefficients = 1e-2 * normal(h, n, seed=1)
    coefficients[:, -1] *= weakest
    trained = scale * hold(initial, dtype=torch.float64).values + coefficients @ samples
    return HeldRows(trained.float()), initial, samples


def angle(found: Spectrum, samples: Tensor) -> float:
    """The sine of the largest principal angle to the span of the samples, by the naive way."""
    truth = torch.linalg.svd(samples.double(), full_matrices=False).Vh.T
    basis = found.subspace.basis.double()
    return float(torch.linalg.matrix_norm(truth - basis @ (basis.T @ truth), 2))


@settings(max_examples=20)
@given(st.integers(1, 20))
def test_the_rank_is_the_number_of_samples_and_the_span_is_theirs(n: int) -> None:
    trained, initial, samples = layer(1.0, n)
    found = first_layer_spectrum(trained, initial)
    assert found.exact
    assert (found.rank, found.scale) == (n, 1.0)
    assert angle(found, samples) < 1e-4


@settings(max_examples=20)
@given(st.floats(0.05, 0.999))
def test_what_weight_decay_left_is_estimated(scale: float) -> None:
    trained, initial, samples = layer(scale)
    found = first_layer_spectrum(trained, initial)
    assert found.exact
    assert found.rank == N
    assert found.scale == pytest.approx(scale, abs=1e-5)
    assert angle(found, samples) < 1e-4


@pytest.mark.parametrize("scale", [1.0, 0.8])
def test_a_sketch_of_the_rows_shows_what_all_of_them_show(scale: float) -> None:
    trained, initial, samples = layer(scale, h=3000)
    whole, sketched = (first_layer_spectrum(trained, initial, size) for size in (3000, 30))
    assert whole.rank == sketched.rank == N
    assert sketched.scale == pytest.approx(whole.scale, abs=1e-5)
    assert max(angle(whole, samples), angle(sketched, samples)) < 1e-4


@pytest.mark.parametrize("size", [3000, 30])
def test_a_row_that_was_not_trained_is_no_direction_of_the_data(size: int) -> None:
    """A head's bias is one more feature, with the row (0, ..., 0, 1) at both ends, of which nothing decays."""
    trained, initial, samples = layer(0.8)
    constant = torch.eye(D)[-1:]
    ends = [HeldRows(torch.cat([hold(rows, dtype=torch.float32).values, constant])) for rows in (trained, initial)]
    found = first_layer_spectrum(ends[0], ends[1], size)
    assert (found.rank, found.exact) == (N, True)
    assert angle(found, samples) < 1e-4


def test_a_sample_of_small_coefficients_is_counted() -> None:
    trained, initial, samples = layer(1.0, weakest=1e-3)
    found = first_layer_spectrum(trained, initial)
    assert found.rank == N
    assert angle(found, samples) < 1e-2


def test_inputs_that_are_always_zero_are_not_counted() -> None:
    trained, initial, samples = layer(1.0)
    before, dead = hold(initial, dtype=torch.float32).values, slice(D // 2, D)
    trained.values[:, dead] = before[:, dead]
    samples[:, dead] = 0
    found = first_layer_spectrum(trained, HeldRows(before))
    assert found.rank == N
    assert angle(found, samples) < 1e-4


@pytest.mark.parametrize("change", [normal(H, D), torch.sign(normal(H, N) @ normal(N, D, seed=1))])
def test_a_change_of_full_rank_is_told_and_not_called_exact(change: Tensor) -> None:
    initial = DrawnRows(5, H, D)
    trained = HeldRows((hold(initial, dtype=torch.float64).values + 1e-3 * change).float())
    found = first_layer_spectrum(trained, initial)
    assert not found.exact
    assert "full rank" in found.describe()
    assert "not used" in first_layer_note(found)


@pytest.mark.parametrize(
    ("recipe", "exact"),
    [
        (DescentRecipe(steps=60), True),
        (DescentRecipe(method="sgd", momentum=0.5, steps=60), True),
        (DescentRecipe(weight_decay=0.05, steps=60), True),
        (DescentRecipe(method="adam", steps=60), False),
    ],
)
def test_trained_layers_are_told_apart_by_how_they_were_trained(recipe: DescentRecipe, exact: bool) -> None:
    data = load(DataConfig.parse(name="sphere", samples=N, dim=D))
    victim = train_two_layer(TwoLayerConfig(width=H, recipe=recipe, knows_first_layer=True), data)
    initial = victim.observation.initial_rows
    assert initial is not None
    found = first_layer_spectrum(victim.observation.ridge.rows, initial)
    assert found.exact == exact
    if exact:
        assert found.scale == pytest.approx(victim.scale, abs=1e-4)
        assert angle(found, data.inputs) < 1e-3


def test_layers_of_different_shapes_are_refused() -> None:
    with pytest.raises(ExhumeError, match=r"of shape \[4, 3\], found \[5, 3\]"):
        first_layer_spectrum(DrawnRows(1, 4, 3), DrawnRows(1, 5, 3))


@pytest.mark.parametrize(("d", "n"), [(10, 8), (10, 9), (40, 35)])
def test_the_whole_spectrum_is_looked_at(d: int, n: int) -> None:
    """Nearly as many samples as dimensions: the gap is at the very end of the spectrum, and is no sign of Adam."""
    before = torch.randn(90, d, generator=torch.Generator().manual_seed(5))
    after = (before.double() + 1e-2 * normal(90, n, seed=1) @ normal(n, d)).float()
    found = first_layer_spectrum(HeldRows(after), HeldRows(before))
    assert (found.rank, found.exact) == (n, True)
    assert found.gap > 100


@pytest.mark.parametrize("h", [40, 41, 45])
def test_the_last_values_of_square_noise_are_no_gap(h: int) -> None:
    for seed in range(10):
        before = torch.randn(h, 40, generator=torch.Generator().manual_seed(seed))
        after = before + 0.1 * torch.randn(h, 40, generator=torch.Generator().manual_seed(100 + seed))
        assert not first_layer_spectrum(HeldRows(after), HeldRows(before)).exact


def test_a_border_that_is_never_lit_and_faint_columns_do_not_add_to_the_rank() -> None:
    """As MNIST's border: columns of zeros, and columns so faint that most of their changes round to nothing."""
    samples = normal(8, 200).abs()
    samples[:, 60:] = 0
    samples[:, 50:60] *= 1e-5
    before = (0.05 * normal(300, 200, seed=3)).float()
    after, pull = before.clone(), 1e-3 * normal(300, 8, seed=4)
    for _ in range(50):
        after += (pull @ samples).float()  # each step rounds
    found = first_layer_spectrum(HeldRows(after), HeldRows(before))
    assert (found.rank, found.exact) == (8, True)
