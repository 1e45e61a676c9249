from types import SimpleNamespace

import pytest

from exhume import seeds
from exhume.data.wishes import data_config, image_fields
from exhume.errors import UsageError

WISHES = SimpleNamespace(
    data="cifar10", samples=4, dim=None, subspace=None, labels=None, noise=None, dtype="float64",
    data_dir="somewhere", classes="frog, truck", per_class="1,3", side=8, standardise="channels", norm="keep",
)  # fmt: skip


def test_text_becomes_names_and_counts_and_the_seed_is_that_of_the_data() -> None:
    config = data_config(WISHES, seed=3)
    assert (config.classes, config.per_class, config.side) == (("frog", "truck"), (1, 3), 8)
    assert (config.standardise, config.norm, config.dtype) == ("channels", "keep", "float64")
    assert config.seed == seeds.derive(3, "data")


def test_counts_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="whole numbers"):
        image_fields(SimpleNamespace(**{**vars(WISHES), "per_class": "one"}))
