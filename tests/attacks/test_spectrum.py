import json
from pathlib import Path

import pytest
import torch

from exhume.attacks.foundation.parametrisation import Parametrisation
from exhume.attacks.prior.spectrum import FrequencySpectrum, load_spectrum, save_spectrum
from exhume.errors import ExhumeError
from exhume.frequencies import frequencies, natural_variance

SHAPE = (3, 8, 8)


def drawn(count: int, seed: int = 0) -> torch.Tensor:
    """Images that obey the law."""
    basis = FrequencySpectrum().basis(SHAPE)
    noise = torch.randn(count, 192, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return basis.lift(noise * basis.variance.sqrt())


def test_a_basis_is_orthonormal_and_its_cut_is_the_projection_on_coarse_images() -> None:
    basis = FrequencySpectrum().basis(SHAPE)
    assert isinstance(basis, Parametrisation)
    columns = basis.lift(torch.eye(192, dtype=torch.float64))
    torch.testing.assert_close(columns @ columns.T, torch.eye(192, dtype=torch.float64))
    cut = basis.cut(20)
    assert (cut.r, cut.d) == (20, 192)
    torch.testing.assert_close(cut.lift(torch.eye(20, dtype=torch.float64)), columns[:20])
    rows = drawn(3)
    torch.testing.assert_close(cut.lower(rows), rows @ columns[:20].T)


def test_a_measured_spectrum_finds_the_law_again() -> None:
    measured = FrequencySpectrum.measured(drawn(400), SHAPE, "drawn")
    ratio = measured.variance(SHAPE) / natural_variance(SHAPE)
    assert float(ratio.log().abs().max()) < 0.5  # rings are as wide as that
    assert float(measured.variance(SHAPE).mean()) == pytest.approx(1)


def test_a_measured_spectrum_is_the_mean_square_over_a_ring() -> None:
    measured = FrequencySpectrum.measured(drawn(5), SHAPE, "drawn")
    basis = FrequencySpectrum().basis(SHAPE)
    seen = torch.zeros(192, dtype=torch.float64)
    seen[basis.chosen] = basis.lower(drawn(5)).square().mean(dim=0)
    unit_ring = (frequencies(SHAPE) >= 1) & (frequencies(SHAPE) < 1.25)
    assert measured.rings is not None
    assert measured.rings[0][1] == pytest.approx(float(seen.reshape(SHAPE)[0][unit_ring].mean()))
    assert measured.rings[0][0] == pytest.approx(float(seen.reshape(SHAPE)[0, 0, 0]))


def test_no_frequency_is_ever_ruled_out() -> None:
    flat = torch.zeros(1, 3, 8, 8, dtype=torch.float64)
    flat[:, :, ::2] = 1.0
    variance = FrequencySpectrum.measured(flat.flatten(start_dim=1), SHAPE, "stripes").variance(SHAPE)
    assert float(variance.min()) > 0


def test_a_spectrum_survives_its_file(tmp_path: Path) -> None:
    measured = FrequencySpectrum.measured(drawn(4), SHAPE, "some folder")
    save_spectrum(measured, tmp_path / "s.json")
    assert load_spectrum(tmp_path / "s.json") == measured


@pytest.mark.parametrize("rings", [None, [], [[]], [[1.0], [1.0, 2.0]], [[0.0]], [[True]], [["1"]], "abc"])
def test_a_damaged_spectrum_is_refused_in_one_line(tmp_path: Path, rings: object) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"kind": "spectrum", "schema": 1, "rings": rings}))
    with pytest.raises(ExhumeError, match="expected a positive variance") as found:
        load_spectrum(path)
    assert "\n" not in str(found.value)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(ExhumeError, match="to hold a spectrum"):
        load_spectrum(tmp_path / "s.json")


def test_blank_images_and_images_of_another_kind_are_refused() -> None:
    with pytest.raises(ExhumeError, match="not blank"):
        FrequencySpectrum.measured(torch.zeros(2, 192), SHAPE, "blank")
    with pytest.raises(ExhumeError, match="1 colour axes"):
        FrequencySpectrum.measured(drawn(4), SHAPE, "drawn").variance((1, 8, 8))
