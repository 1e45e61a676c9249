from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from exhume.errors import ExhumeError, UsageError
from exhume_papers.data.cifar10 import BLOCK_RECORDS, RECORD_BYTES, load_cifar10

SHARED = Path(__file__).parents[3].parent / "shared" / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cifar-10-batches-bin"
    path.mkdir()
    return path


def write_batch(folder: Path, labels: Sequence[int], number: int = 1) -> np.ndarray:
    """Records with random pixels and these labels; the pixels come back as (n, 3, 32, 32) bytes."""
    pixels = np.random.default_rng(number).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    records = np.concatenate([np.array(labels, np.uint8)[:, None], pixels], axis=1)
    (folder / f"data_batch_{number}.bin").write_bytes(records.tobytes())
    return pixels.reshape(-1, 3, 32, 32)


def test_the_first_images_of_each_class_come_in_the_order_asked_for(tmp_path: Path, folder: Path) -> None:
    pixels = write_batch(folder, [9, 6, 3, 6, 9, 6, 9])
    images = load_cifar10(tmp_path, ["truck", "frog"], [1, 2])
    assert images.class_names == ("truck", "frog")
    assert images.class_index.tolist() == [0, 1, 1]
    assert torch.equal(images.pixels, torch.from_numpy(pixels[[0, 1, 3]]).double() / 255)


def test_batches_are_read_in_order_and_missing_ones_skipped(tmp_path: Path, folder: Path) -> None:
    late = write_batch(folder, [6], number=4)
    early = write_batch(folder, [6], number=2)
    images = load_cifar10(tmp_path, ["frog"], [2])
    assert torch.equal((images.pixels * 255).round().byte(), torch.from_numpy(np.concatenate([early, late])))


def test_images_beyond_the_first_block_are_found(tmp_path: Path, folder: Path) -> None:
    pixels = write_batch(folder, [0] * (BLOCK_RECORDS + 3) + [6, 9])
    images = load_cifar10(tmp_path, ["6", "9"], [1, 1])
    assert torch.equal(images.pixels, torch.from_numpy(pixels[-2:]).double() / 255)


def test_reading_stops_once_enough_was_found(tmp_path: Path, folder: Path) -> None:
    write_batch(folder, [6, 9])
    (folder / "data_batch_2.bin").write_bytes(b"torn")
    assert len(load_cifar10(tmp_path, ["frog", "truck"], [1, 1]).pixels) == 2
    with pytest.raises(ExhumeError, match="data_batch_2"):
        load_cifar10(tmp_path, ["frog", "truck"], [2, 1])


def test_class_names_come_from_the_meta_file_without_its_blank_lines(tmp_path: Path, folder: Path) -> None:
    write_batch(folder, [0, 1])
    (folder / "batches.meta.txt").write_text("apple\n\n pear \n\n")
    assert load_cifar10(tmp_path, ["pear", "0"], [1, 1]).class_names == ("pear", "apple")


def test_a_class_may_have_no_image(tmp_path: Path, folder: Path) -> None:
    write_batch(folder, [6])
    images = load_cifar10(tmp_path, ["frog", "truck"], [1, 0])
    assert images.pixels.shape == (1, 3, 32, 32)
    assert images.class_names == ("frog", "truck")


def refused(tmp_path: Path, kind: type[ExhumeError], classes: Sequence[str] = ("frog",), count: int = 1) -> str:
    with pytest.raises(ExhumeError) as caught:
        load_cifar10(tmp_path, classes, [count] * len(classes))
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "expected" in message
    assert "found" in message
    assert "\n" not in message
    return message


def test_a_missing_folder_says_where_it_looked_and_how_to_get_it(tmp_path: Path) -> None:
    message = refused(tmp_path, ExhumeError)
    assert str(tmp_path / "cifar-10-batches-bin") in message
    assert "exhume data fetch cifar10" in message


def test_a_folder_without_batches_is_refused(tmp_path: Path, folder: Path) -> None:
    assert "data_batch_1.bin to data_batch_5.bin" in refused(tmp_path, ExhumeError)


@pytest.mark.parametrize("size", [0, 5000, RECORD_BYTES - 1, RECORD_BYTES + 1])
def test_a_truncated_file_is_refused(tmp_path: Path, folder: Path, size: int) -> None:
    (folder / "data_batch_1.bin").write_bytes(bytes(size))
    message = refused(tmp_path, ExhumeError)
    assert f"found {size} bytes" in message
    assert "whole number of 3073-byte" in message


def test_a_label_beyond_the_classes_is_refused(tmp_path: Path, folder: Path) -> None:
    write_batch(folder, [3] * BLOCK_RECORDS + [3, 77])
    assert f"found 77 in record {BLOCK_RECORDS + 1}" in refused(tmp_path, ExhumeError)


def test_an_empty_meta_file_is_refused(tmp_path: Path, folder: Path) -> None:
    write_batch(folder, [6])
    (folder / "batches.meta.txt").write_text("\n")
    assert "batches.meta.txt" in refused(tmp_path, ExhumeError)


def test_a_batch_that_is_a_folder_is_refused(tmp_path: Path, folder: Path) -> None:
    (folder / "data_batch_1.bin").mkdir()
    refused(tmp_path, ExhumeError)


def test_an_unknown_class_lists_the_known(tmp_path: Path, folder: Path) -> None:
    write_batch(folder, [6])
    assert "airplane, automobile" in refused(tmp_path, UsageError, classes=["cow"])


def test_too_few_images_of_a_class_says_how_many_there_are(tmp_path: Path, folder: Path) -> None:
    write_batch(folder, [6, 9, 6])
    assert "expected 3 images of class 'frog', found 2" in refused(tmp_path, UsageError, count=3)


def test_the_real_file_gives_its_first_frogs_and_trucks() -> None:
    if not (SHARED / "cifar-10-batches-bin").is_dir():
        pytest.skip("needs the real CIFAR-10 in ../shared/data")
    images = load_cifar10(SHARED, ["frog", "truck"], [10, 10])
    records = np.fromfile(SHARED / "cifar-10-batches-bin" / "data_batch_1.bin", np.uint8).reshape(-1, RECORD_BYTES)
    chosen = np.concatenate([records[records[:, 0] == label][:10, 1:] for label in (6, 9)])
    assert torch.equal((images.pixels * 255).round().byte().reshape(20, -1), torch.from_numpy(chosen))
    with pytest.raises(UsageError, match="expected 110 images of class 'frog', found 109"):
        load_cifar10(SHARED, ["frog"], [110])
