import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from exhume.errors import ExhumeError, UsageError
from exhume.networks.loading import check_inputs, load_factory, load_state, prepare_for_attack

SOURCE = """
from torch import nn

WIDTH = 3

def small():
    return nn.Linear(WIDTH, 2)

def nothing():
    return None

def tuple_of_two():
    return small(), small()

def fails():
    raise ValueError("no weights\\nin this folder")

def wants(width):
    return nn.Linear(width, 2)

def leaves():
    raise SystemExit(3)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "users_models.py").write_text(SOURCE)
    (tmp_path / "broken_models.py").write_text("import a_package_that_is_not_there")
    yield tmp_path
    for name in ("users_models", "broken_models"):
        sys.modules.pop(name, None)


def test_a_factory_is_found_in_the_folder_and_the_path_is_left_as_it_was(folder: Path) -> None:
    before = list(sys.path)
    model = load_factory("users_models:small", folder)
    assert isinstance(model, nn.Linear)
    assert sys.path == before


def test_a_factory_is_found_in_the_folder_of_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert isinstance(load_factory("users_models:small"), nn.Linear)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("users_models", "expected a model as package.module:factory, found 'users_models'"),
        ("users_models:", "package.module:factory"),
        ("users models:small", "package.module:factory"),
        ("missing_models:small", "module missing_models that can be imported, found: ModuleNotFoundError: No module"),
        ("broken_models:small", "found: ModuleNotFoundError: No module named 'a_package_that_is_not_there'"),
        (
            "users_models:large",
            "expected 'large' in the module users_models, found small, nothing, tuple_of_two, fails",
        ),
        ("users_models:WIDTH", "a factory to call, found an object of type int"),
        ("users_models:nothing", "to return a torch.nn.Module, found None"),
        ("users_models:tuple_of_two", "to return a torch.nn.Module, found an object of type tuple"),
        ("users_models:fails", "found: ValueError: no weights in this folder"),
        ("users_models:wants", "called without arguments, found: TypeError"),
        ("users_models:leaves", "found: SystemExit: 3"),
    ],
)
def test_what_is_wrong_with_a_factory_is_one_line(folder: Path, spec: str, said: str) -> None:
    with pytest.raises(UsageError) as problem:
        load_factory(spec, folder)
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_arguments_are_handed_on_and_named_where_they_do_not_fit(folder: Path) -> None:
    model = load_factory("users_models:wants", folder, {"width": 5})
    assert isinstance(model, nn.Linear)
    assert model.in_features == 5
    with pytest.raises(UsageError, match="to work when called with depth, found: TypeError"):
        load_factory("users_models:wants", folder, {"depth": 5})


def test_tensors_that_may_be_missing_stay_as_they_are() -> None:
    model = nn.Linear(3, 2)
    before = model.bias.detach().clone()
    load_state(model, {"weight": torch.ones(2, 3)}, without=("bias",))
    assert torch.equal(model.weight, torch.ones(2, 3))
    assert torch.equal(model.bias, before)
    with pytest.raises(ExhumeError, match="found bias 3 instead of 2"):
        load_state(model, {"weight": torch.ones(2, 3), "bias": torch.ones(3)}, without=("bias",))


def test_weights_that_fit_are_copied() -> None:
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    load_state(target, source.state_dict())
    assert torch.equal(source.weight, target.weight)


def test_weights_that_do_not_fit_are_named_tensor_by_tensor_and_change_nothing() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4))
    before = model[0].weight.clone()  # type: ignore[operator]
    state = {
        "0.weight": torch.ones(2, 3),
        "0.bias": torch.ones(5),
        "1.weight": torch.ones(2, 4),
        "extra": torch.ones(1),
    }
    with pytest.raises(ExhumeError) as problem:
        load_state(model, state, "weights.safetensors")
    assert str(problem.value) == (
        "expected weights.safetensors to fit the model, found no 1.bias 4, 0.bias 5 instead of 2, "
        "1.weight 2x4 instead of 4x2, extra that the model does not have"
    )
    assert torch.equal(model[0].weight, before)  # type: ignore[arg-type]


def test_weights_that_are_no_numbers_to_compute_with_are_refused() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ExhumeError, match="weight in int64"):
        load_state(model, {"weight": torch.ones(1, 2, dtype=torch.int64), "bias": torch.zeros(1)})
    with pytest.raises(ExhumeError, match="NaN or infinite ones in bias"):
        load_state(model, {"weight": torch.ones(1, 2), "bias": torch.tensor([float("nan")])})


def test_a_long_list_of_wrong_tensors_is_cut() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(10)))
    with pytest.raises(ExhumeError, match="and 12 more"):
        load_state(model, {})


def test_dropout_and_batch_norm_are_put_into_evaluation_mode_and_it_is_said() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    said = prepare_for_attack(model)
    assert said == ("evaluation mode: dropout is switched off in 2 and batch norm uses its running statistics in 1")
    assert not any(layer.training for layer in model.modules())
    rows = torch.randn(5, 3)
    torch.testing.assert_close(model(rows)[:1], model(rows[:1]))


def test_dropout_inside_attention_counts_and_dropout_of_nothing_does_not() -> None:
    said = prepare_for_attack(nn.MultiheadAttention(4, 2, dropout=0.1))
    assert said is not None
    assert "dropout" in said
    assert prepare_for_attack(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)).train()) is None


def test_batch_norm_that_mixes_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="running statistics, found none in 0"):
        prepare_for_attack(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)))


def test_inputs_of_whole_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match="floating point, found uint8; convert"):
        check_inputs(torch.zeros(2, 3, dtype=torch.uint8))
