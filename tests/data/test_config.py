from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from exhume.data.config import DataConfig
from exhume.errors import UsageError

SPHERE = {"name": "sphere", "samples": 4, "dim": 3}
CIFAR10 = {"name": "cifar10", "samples": 4}
FACES = {"name": "faces", "samples": 4}

BAD = [
    ({"name": "", "samples": 4}, "name", "''"),
    ({"name": "faces"}, "samples", "none"),
    ({**FACES, "samples": 0}, "greater than or equal to 1", "0"),
    ({**FACES, "samples": "many\nlines"}, "integer", r"many\nlines"),
    ({**FACES, "samples": 2.5}, "integer", "2.5"),
    ({**FACES, "colour": "red"}, "name, samples, dim", "'colour'"),
    ({**FACES, "standardise": "whiten"}, "'subset'", "'whiten'"),
    ({**FACES, "norm": "one"}, "'sqrt-d'", "'one'"),
    ({**FACES, "dtype": "float16"}, "'float32'", "'float16'"),
    ({**FACES, "seed": -1}, "seed", "-1"),
    ({**FACES, "side": 0}, "side", "0"),
    ({**FACES, "dim": 5}, "no dim", "5"),
    ({**FACES, "subspace": 5}, "no subspace", "5"),
    ({**FACES, "label_rule": "sign"}, "no label_rule", "'sign'"),
    ({**FACES, "noise": 0.5}, "no noise", "0.5"),
    ({**FACES, "classes": ("smiling",)}, "no classes", "smiling"),
    ({**FACES, "per_class": (4,)}, "no per_class", "(4,)"),
    ({"name": "sphere", "samples": 4}, "dimension", "none"),
    ({**SPHERE, "subspace": 4}, "at most dim = 3", "4"),
    ({**SPHERE, "subspace": 0}, "subspace", "0"),
    ({**SPHERE, "noise": -0.1}, "noise", "-0.1"),
    ({**SPHERE, "noise": float("inf")}, "finite", "inf"),
    ({**SPHERE, "label_rule": "cubic"}, "'linear'", "'cubic'"),
    ({**SPHERE, "label_rule": "sign", "noise": 0.5}, "no noise", "0.5"),
    ({**SPHERE, "classes": ("frog",)}, "no classes", "frog"),
    ({**SPHERE, "per_class": (4,)}, "no per_class", "(4,)"),
    ({**SPHERE, "side": 2}, "no side", "2"),
    ({**SPHERE, "standardise": "channels"}, "no standardise", "channels"),
    ({**SPHERE, "norm": "keep"}, "no norm", "keep"),
    ({**CIFAR10, "per_class": (1, 2)}, "samples = 4", "3"),
    ({**CIFAR10, "per_class": (4,)}, "each of the 2 classes", "1"),
    ({**CIFAR10, "per_class": (5, -1)}, "per_class", "-1"),
]


@pytest.mark.parametrize(("fields", "expected", "found"), BAD)
def test_a_wrong_request_is_refused_in_one_line(fields: dict[str, object], expected: str, found: str) -> None:
    with pytest.raises(UsageError) as caught:
        DataConfig.parse(**fields)
    message = str(caught.value)
    assert "\n" not in message
    assert expected in message.partition("found")[0]
    assert found in message.partition("found")[2]


def test_a_configuration_cannot_be_changed() -> None:
    config = DataConfig.parse(**FACES)
    with pytest.raises(ValidationError, match="frozen"):
        config.samples = 5


@pytest.mark.parametrize(
    ("name", "classes"), [("cifar10", ("frog", "truck")), ("tiny-imagenet", ("2", "116")), ("faces", ()), ("a/b", ())]
)
def test_classes_have_a_default_for_each_data_set(name: str, classes: tuple[str, ...]) -> None:
    assert DataConfig.parse(name=name, samples=2).classes == classes
    assert DataConfig.parse(name=name, samples=2, classes=None).classes == classes


def test_none_means_the_default_of_any_field() -> None:
    assert DataConfig.parse(**SPHERE, noise=None, standardise=None, norm=None, seed=None) == DataConfig.parse(**SPHERE)


def test_the_sphere_is_never_standardised() -> None:
    assert DataConfig.parse(**SPHERE).standardise == "none"
    assert DataConfig.parse(**FACES).standardise == "subset"


@pytest.mark.parametrize(
    "fields",
    [
        {**SPHERE, "subspace": 2, "noise": 0.0, "seed": 7, "dtype": "float64"},
        {**CIFAR10, "classes": ("cat", "dog", "3"), "per_class": (2, 1, 1), "side": 8, "data_dir": "data"},
        {**FACES, "standardise": "none", "norm": "keep"},
    ],
)
def test_a_configuration_comes_back_from_its_json(fields: dict[str, object]) -> None:
    config = DataConfig.parse(**fields)
    assert DataConfig.model_validate_json(config.model_dump_json()) == config
    assert DataConfig.parse(**config.model_dump()) == config


def test_a_folder_name_becomes_a_path() -> None:
    assert DataConfig.parse(**CIFAR10, data_dir="some/where").data_dir == Path("some/where")


@settings(deadline=None)
@given(samples=st.integers(1, 1000), class_count=st.integers(1, 50))
def test_an_even_split_adds_up_and_gives_the_remainder_to_the_first(samples: int, class_count: int) -> None:
    counts = DataConfig(name="folder", samples=samples).split(class_count)
    assert sum(counts) == samples
    assert len(counts) == class_count
    assert max(counts) - min(counts) <= 1
    assert list(counts) == sorted(counts, reverse=True)


def test_an_explicit_split_is_kept() -> None:
    assert DataConfig.parse(**CIFAR10, per_class=(1, 3)).split(2) == (1, 3)
