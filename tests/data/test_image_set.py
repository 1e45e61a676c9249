import pytest
import torch

from exhume.data.image_set import index_of_blocks, labels_from_classes


@pytest.mark.parametrize(
    ("counts", "labels"),
    [
        ([2, 1], [-1.0, -1.0, 1.0]),
        ([0, 2], [1.0, 1.0]),
        ([1, 0], [-1.0]),
        ([1, 2, 1], [0.0, 1.0, 1.0, 2.0]),
        ([3], [-1.0, 1.0, -1.0]),
    ],
)
def test_labels_follow_from_the_number_of_classes(counts: list[int], labels: list[float]) -> None:
    assert labels_from_classes(index_of_blocks(counts), len(counts)).tolist() == labels


def test_images_without_class_alternate() -> None:
    assert labels_from_classes(torch.full((4,), -1), 0).tolist() == [-1.0, 1.0, -1.0, 1.0]
