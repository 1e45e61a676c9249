from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exhume.auditing.records import (
    control_from_images,
    control_from_rows,
    load_records,
    more_of_the_same,
    read_rows,
    records_of_rows,
)
from exhume.data.config import DataConfig
from exhume.data.records import prepare_alike
from exhume.errors import ExhumeError, UsageError

FACES = DataConfig(name="faces", samples=3)


def test_rows_are_kept_as_the_model_saw_them_and_shown_over_their_range() -> None:
    images = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    records = records_of_rows(images, torch.tensor([0, 1, 0, 2]))
    assert torch.equal(records.inputs, images.flatten(start_dim=1))
    assert records.image_shape == (3, 2, 2)
    assert records.class_index.tolist() == [0, 1, 0, 2]
    pixels = records.preparation.to_pixels(records.inputs, records.preparation.scale)
    assert float(pixels.min()) == pytest.approx(0, abs=1e-6)
    assert float(pixels.max()) == pytest.approx(1, abs=1e-6)
    unit = records_of_rows(torch.rand(2, 5, 5))
    assert unit.image_shape == (1, 5, 5)
    shown = unit.preparation.to_pixels(unit.inputs, unit.preparation.scale)
    assert torch.allclose(shown.flatten(start_dim=1), unit.inputs)
    assert unit.labels.isnan().all()


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (torch.ones(3), None),
        (torch.ones(3, 2, dtype=torch.int64), None),
        (torch.ones(0, 2), None),
        (torch.ones(3, 2), torch.ones(2)),
    ],
)
def test_what_is_no_set_of_rows_is_refused(inputs: torch.Tensor, labels: torch.Tensor | None) -> None:
    with pytest.raises(UsageError):
        records_of_rows(inputs, labels)


def test_records_come_from_a_file_of_rows(tmp_path: Path) -> None:
    rows = torch.randn(3, 4)
    save_file({"inputs": rows, "labels": torch.tensor([1.0, -1.0, 1.0])}, tmp_path / "t.safetensors")
    assert torch.equal(read_rows(tmp_path / "t.safetensors").inputs, rows)
    assert control_from_rows(tmp_path / "t.safetensors").labels is not None
    save_file({"x": rows}, tmp_path / "u.safetensors")
    with pytest.raises(ExhumeError, match="expected a tensor named inputs"):
        read_rows(tmp_path / "u.safetensors")
    save_file({"inputs": rows * torch.nan}, tmp_path / "v.safetensors")
    with pytest.raises(ExhumeError, match="finite"):
        read_rows(tmp_path / "v.safetensors")


def test_more_faces_serve_as_control_prepared_like_those_that_were_trained_on() -> None:
    truth = load_records(FACES)
    control = more_of_the_same(FACES, truth)
    assert control is not None
    assert control.inputs.shape == truth.inputs.shape
    assert control.labels is None, "faces have no classes, so their labels say nothing"
    assert float(torch.cdist(control.inputs, truth.inputs).min()) > 1
    assert torch.allclose(control.inputs.norm(dim=1), truth.inputs.norm(dim=1))
    pixels = truth.preparation.to_pixels(truth.inputs, truth.preparation.scale)
    assert torch.allclose(prepare_alike(pixels, truth.preparation), truth.inputs, atol=1e-3)


def test_images_that_were_trained_on_are_no_control() -> None:
    truth = load_records(FACES)
    with pytest.raises(UsageError, match="not trained on, found none"):
        control_from_images(FACES, truth)
    most = DataConfig(name="faces", samples=60)
    assert more_of_the_same(most, load_records(most)) is None
