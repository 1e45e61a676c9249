"""Observations of networks: what is kept of them, what comes back, and what code may run on the way."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from exhume.errors import ExhumeError
from exhume.features.module import ModuleFeatures
from exhume.features.network import body_state, network_features
from exhume.features.network_source import NetworkSource
from exhume.files import read_tensors
from exhume.networks.loading import load_factory
from exhume.observation import Knowledge, Observation, load_observation, save_observation
from exhume_papers.networks.resnet import blank_resnet
from exhume_papers.networks.vit import blank_vision_transformer

RESNET = {"side": 4, "channels": 3, "outputs": 2, "kernel": 5, "padding": 1, "blocks": 1, "colours": 1}
VIT: dict[str, Any] = {"side": 4, "patch": 2, "embedding": 6, "depth": 1, "heads": 2, "outputs": 2, "colours": 1}
D = 16

USERS = """
from torch import nn

RUNS = []

def small(width=5):
    RUNS.append(width)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.Tanh(), nn.Dropout(0.5), nn.Linear(width, 2))
"""
SPEC = "users_own_nets:small"


@pytest.fixture
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "users_own_nets.py").write_text(USERS)
    monkeypatch.chdir(tmp_path / "code")
    yield
    sys.modules.pop("users_own_nets", None)


def moved(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Weights that no factory draws."""
    stream = torch.Generator().manual_seed(seed)
    return {
        name: value + 0.1 * torch.randn(value.shape, generator=stream).to(value)
        for name, value in model.state_dict().items()
    }


def resnet_source(dtype: torch.dtype = torch.float32, averaged: bool = False, bias: bool = False) -> NetworkSource:
    model = blank_resnet(**RESNET).to(dtype)
    return NetworkSource(
        factory="exhume_papers.networks.resnet:blank_resnet",
        head="head",
        input_shape=(D,),
        state=body_state(model, "head", moved(model, 1)),
        arguments=RESNET,
        initial_state=body_state(model, "head", moved(model, 2)) if averaged else None,
        dtype=dtype,
        bias=bias,
        feature_shape=(3, 2, 2),
        group_axis=0,
    )


def users_source() -> NetworkSource:
    model = load_factory(SPEC)
    return NetworkSource(SPEC, "4", (1, 4, 4), body_state(model, "4", moved(model, 1)), bias=True)


def observed(features: ModuleFeatures) -> Observation:
    weights = torch.randn(2, features.p, generator=torch.Generator().manual_seed(5))
    return Observation(features, weights, Knowledge(3, 4.0, "known"), (1, 4, 4))


def inputs(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(3, D, generator=torch.Generator().manual_seed(7)).to(dtype)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ExhumeError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_network_comes_back_with_the_same_features(
    tmp_path: Path, dtype: torch.dtype, averaged: bool, bias: bool
) -> None:
    saved = observed(network_features(resnet_source(dtype, averaged, bias)))
    save_observation(saved, tmp_path / "o")
    loaded = load_observation(tmp_path / "o")
    assert torch.equal(loaded.features(inputs(dtype)), saved.features(inputs(dtype)))
    assert torch.equal(loaded.weights, saved.weights)
    assert (loaded.knowledge, loaded.image_shape, loaded.d) == (saved.knowledge, (1, 4, 4), D)
    assert isinstance(loaded.features, ModuleFeatures)
    assert isinstance(saved.features, ModuleFeatures)
    assert loaded.features.groups is not None
    assert loaded.features.groups.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * bias
    save_observation(loaded, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "o").read_bytes()


def test_averaged_features_are_half_of_each_network() -> None:
    both = resnet_source(averaged=True)
    assert both.initial_state is not None
    trained = network_features(replace(both, initial_state=None))
    initial = network_features(replace(both, initial_state=None, state=both.initial_state))
    expected = (trained(inputs()) + initial(inputs())) / 2
    torch.testing.assert_close(network_features(both)(inputs()), expected)


def test_a_vision_transformer_comes_back(tmp_path: Path) -> None:
    model = blank_vision_transformer(**VIT)
    source = NetworkSource(
        factory="exhume_papers.networks.vit:blank_vision_transformer",
        head="head",
        input_shape=(D,),
        state=body_state(model, "head", moved(model, 1)),
        arguments=VIT,
        feature_shape=(4, 6),
        group_axis=1,
    )
    saved = observed(network_features(source))
    save_observation(saved, tmp_path / "o")
    loaded = load_observation(tmp_path / "o")
    assert torch.equal(loaded.features(inputs()), saved.features(inputs()))
    assert isinstance(loaded.features, ModuleFeatures)
    assert loaded.features.groups is not None
    assert loaded.features.groups.tolist() == list(range(6)) * 4


def test_a_part_of_the_features_comes_back_as_that_part(tmp_path: Path) -> None:
    kept = torch.tensor([1, 4, 11])
    saved = observed(network_features(resnet_source()).part(kept))
    save_observation(saved, tmp_path / "o")
    loaded = load_observation(tmp_path / "o").features
    assert torch.equal(loaded(inputs()), network_features(resnet_source())(inputs())[:, kept])
    assert isinstance(loaded, ModuleFeatures)
    assert loaded.groups is not None
    assert loaded.groups.tolist() == [0, 1, 2]


def test_the_tensors_of_the_head_are_not_kept(tmp_path: Path) -> None:
    """A defence changes the head that is published: the one before it must not be in the file."""
    save_observation(observed(network_features(resnet_source())), tmp_path / "o")
    names = read_tensors(tmp_path / "o", "observation").tensors
    assert {name for name in names if name.startswith("state.")} == {
        "state.first.weight",
        "state.blocks.0.inner.weight",
        "state.blocks.0.outer.weight",
    }


def test_a_head_that_shares_its_weights_with_another_layer_does_not_overwrite_them(
    tmp_path: Path, users_module: None
) -> None:
    (tmp_path / "code" / "users_own_nets.py").write_text(
        "from torch import nn\n"
        "def tied():\n"
        "    net = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Tanh(), nn.Linear(16, 16, bias=False))\n"
        "    net[2].weight = net[0].weight\n"
        "    return net\n"
    )
    first = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    source = NetworkSource("users_own_nets:tied", "2", (D,), {"0.weight": first})
    features = network_features(source, "users_own_nets:tied")
    torch.testing.assert_close(features(inputs()), torch.tanh(inputs() @ first.T))


def test_users_code_runs_only_if_the_caller_names_it(tmp_path: Path, users_module: None) -> None:
    saved = observed(network_features(users_source(), SPEC))
    save_observation(saved, tmp_path / "o")
    sys.modules.pop("users_own_nets")
    assert f"expected --model {SPEC}" in refusal(lambda: load_observation(tmp_path / "o"))
    assert "found --model other:thing" in refusal(lambda: load_observation(tmp_path / "o", "other:thing"))
    assert "users_own_nets" not in sys.modules
    loaded = load_observation(tmp_path / "o", SPEC)
    assert torch.equal(loaded.features(inputs()), saved.features(inputs()))


def test_networks_are_found_by_the_names_of_the_first_version(tmp_path: Path) -> None:
    saved = observed(network_features(resnet_source()))
    edited(saved, tmp_path / "o", network={"factory": "exhume.networks.resnet:blank_resnet"})
    assert torch.equal(load_observation(tmp_path / "o").features(inputs()), saved.features(inputs()))


def test_no_name_inside_exhume_but_the_builders_is_trusted(tmp_path: Path, users_module: None) -> None:
    """`load_factory` itself would otherwise be a way to any code."""
    saved = observed(network_features(resnet_source()))
    for factory, arguments in (
        ("exhume.networks.loading:load_factory", {"spec": SPEC}),
        ("exhume_papers.networks.resnet:ResNet", RESNET),
        ("exhume_papers.networks.resnet:torch.load", {}),
        ("builtins:exec", {}),
    ):
        edited(saved, tmp_path / "o", network={"factory": factory, "arguments": arguments})
        refusal(lambda: load_observation(tmp_path / "o"))
    assert "users_own_nets" not in sys.modules


def test_the_random_numbers_of_a_program_are_left_alone(tmp_path: Path, users_module: None) -> None:
    save_observation(observed(network_features(users_source(), SPEC)), tmp_path / "o")
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    load_observation(tmp_path / "o", SPEC)
    assert torch.equal(torch.rand(1), expected)


def test_features_of_unknown_origin_cannot_be_saved(tmp_path: Path) -> None:
    features = ModuleFeatures(lambda rows: rows[:, :3], D, 3)
    assert "unknown origin" in refusal(lambda: save_observation(observed(features), tmp_path / "o"))


def edited(observation: Observation, path: Path, network: dict[str, Any] | None = None, **tensors: Tensor) -> None:
    """Saves an observation that somebody has changed."""
    save_observation(observation, path)
    file = read_tensors(path, "observation")
    file.meta["network"].update(network or {})
    save_file(file.tensors | tensors, path, metadata={"exhume": json.dumps(file.meta)})


@pytest.mark.parametrize(
    "network",
    [
        {"factory": "no colon"},
        {"factory": 5},
        {"factory": "a:b\nc"},
        {"head": "tail"},
        {"head": None},
        {"input_shape": [15]},
        {"input_shape": [0]},
        {"input_shape": []},
        {"input_shape": 16},
        {"input_shape": [2**40]},
        {"arguments": {}},
        {"arguments": {**RESNET, "channels": 4}},
        {"arguments": {**RESNET, "channels": 10**13}},
        {"arguments": {**RESNET, "channels": "three"}},
        {"arguments": {**RESNET, "more": 1}},
        {"arguments": 3},
        {"dtype": "int64"},
        {"bias": 1},
        {"bias": True},
        {"averaged": True},
        {"averaged": None},
        {"feature_shape": [3, 2]},
        {"feature_shape": None},
        {"feature_shape": [3, 2, -2]},
        {"group_axis": 3},
        {"group_axis": -1},
        {"group_axis": "0"},
    ],
    ids=str,
)
def test_a_source_that_makes_no_sense_is_one_line(tmp_path: Path, network: dict[str, Any]) -> None:
    edited(observed(network_features(resnet_source())), tmp_path / "o", network)
    refusal(lambda: load_observation(tmp_path / "o"))


@pytest.mark.parametrize("key", ["factory", "head", "input_shape", "arguments", "dtype", "bias", "averaged"])
def test_a_source_that_lacks_something_is_one_line(tmp_path: Path, key: str) -> None:
    path = tmp_path / "o"
    save_observation(observed(network_features(resnet_source())), path)
    file = read_tensors(path, "observation")
    del file.meta["network"][key]
    save_file(file.tensors, path, metadata={"exhume": json.dumps(file.meta)})
    assert key in refusal(lambda: load_observation(path))


def test_weights_that_do_not_fit_are_named_tensor_by_tensor(tmp_path: Path) -> None:
    saved = observed(network_features(resnet_source()))
    edited(saved, tmp_path / "o", None, **{"state.first.weight": torch.ones(3, 1, 4, 4), "state.spare": torch.ones(2)})
    said = refusal(lambda: load_observation(tmp_path / "o"))
    assert "first.weight 3x1x4x4 instead of 3x1x5x5, spare that the model does not have" in said
    assert str(tmp_path / "o") in said
    edited(saved, tmp_path / "o", None, **{"state.first.weight": torch.full((3, 1, 5, 5), torch.nan)})
    assert "NaN or infinite ones in first.weight" in refusal(lambda: load_observation(tmp_path / "o"))


@pytest.mark.parametrize(
    "chosen",
    [torch.tensor([0, 0]), torch.tensor([12]), torch.tensor([-1]), torch.tensor([0.0]), torch.zeros(0).long()],
    ids=str,
)
def test_parts_that_the_network_does_not_have_are_one_line(tmp_path: Path, chosen: Tensor) -> None:
    edited(observed(network_features(resnet_source())), tmp_path / "o", None, chosen=chosen)
    refusal(lambda: load_observation(tmp_path / "o"))
