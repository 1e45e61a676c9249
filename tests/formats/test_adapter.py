"""LoRA adapters as peft writes them, read and merged without peft."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.formats.adapter import read_adapter

PLAIN = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "base_model_name_or_path": "org/base"}


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def adapter(folder: Path, tensors: Mapping[str, Tensor], **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(PLAIN | settings))
    save_file(
        {f"base_model.model.{name}": value for name, value in tensors.items()}, folder / "adapter_model.safetensors"
    )
    return folder


def factors(layer: str = "fc", out: int = 5, into: int = 4) -> dict[str, Tensor]:
    return {f"{layer}.lora_A.weight": drawn(2, into), f"{layer}.lora_B.weight": drawn(out, 2)}


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, 3.0),
        ({"use_rslora": True}, 6 / math.sqrt(2)),
        ({"alpha_pattern": {"fc": 10}}, 5.0),
        ({"alpha_pattern": {"other": 10}}, 3.0),
        ({"lora_alpha": 1}, 0.5),
    ],
)
def test_the_change_is_the_product_of_the_factors(tmp_path: Path, settings: dict[str, Any], scale: float) -> None:
    parts = factors("deep.fc")
    found = read_adapter(adapter(tmp_path, parts, **settings))
    (layer,) = found.changes
    expected = scale * parts["deep.fc.lora_B.weight"] @ parts["deep.fc.lora_A.weight"]
    assert (layer.name, layer.rank, layer.width, found.base) == ("deep.fc", 2, 4, "org/base")
    assert np.allclose(layer.change(), expected.numpy(), atol=1e-6)


def test_weights_kept_the_other_way_round_and_convolutions(tmp_path: Path) -> None:
    parts = factors()
    (layer,) = read_adapter(adapter(tmp_path / "a", parts, fan_in_fan_out=True)).changes
    assert layer.change().shape == (4, 5)
    parts = {"c.lora_A.weight": drawn(2, 3, 3, 3), "c.lora_B.weight": drawn(6, 2, 1, 1)}
    (layer,) = read_adapter(adapter(tmp_path / "b", parts)).changes
    expected = 3 * torch.einsum("or,rihw->oihw", parts["c.lora_B.weight"][:, :, 0, 0], parts["c.lora_A.weight"])
    assert np.allclose(layer.change(), expected.numpy(), atol=1e-5)
    assert layer.width == 27


def test_whole_layers_and_embeddings_are_kept_apart(tmp_path: Path) -> None:
    parts = factors() | {
        "fc.base_layer.bias": drawn(5),
        "head.weight": drawn(3, 5),
        "words.lora_embedding_A": drawn(2, 9),
        "words.lora_embedding_B": drawn(4, 2),
    }
    found = read_adapter(adapter(tmp_path, parts))
    assert set(found.whole) == {"fc.bias", "head.weight"}
    assert set(found.tokens) == {"words"}


def linked(folder: Path) -> Path:
    made = adapter(folder / "a", factors())
    (made / "adapter_model.safetensors").rename(folder / "elsewhere.safetensors")
    (made / "adapter_model.safetensors").symlink_to(folder / "elsewhere.safetensors")
    return made


def lying(folder: Path) -> Path:
    made = adapter(folder, factors())
    content = (made / "adapter_model.safetensors").read_bytes()
    (made / "adapter_model.safetensors").write_bytes(content[:-8])
    return made


def broken(folder: Path) -> Path:
    parts = factors()
    parts["fc.lora_A.weight"][0, 0] = math.nan
    return adapter(folder, parts)


def without_tensors(folder: Path) -> Path:
    (adapter(folder, factors()) / "adapter_model.safetensors").unlink()
    return folder


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: adapter(folder, factors(), peft_type="IA3"), "found one of kind 'IA3'; merge it"),
        (lambda folder: adapter(folder, factors(), use_dora=True), "found use_dora; merge it"),
        (lambda folder: adapter(folder, factors(), init_lora_weights="pissa"), "B began at zero"),
        (lambda folder: adapter(folder, factors(), init_lora_weights=[True]), "B began at zero"),
        (lambda folder: adapter(folder, factors(), lora_alpha="much"), "a number lora_alpha"),
        (lambda folder: adapter(folder, factors(), alpha_pattern={"(a+)+$": 1}), "regular expressions"),
        (lambda folder: adapter(folder, {"fc.lora_A.weight": drawn(2, 4)}), "found one of them for 'fc'"),
        (lambda folder: adapter(folder, {"head.weight": drawn(2, 4)}), "found none"),
        (
            lambda folder: adapter(folder, factors() | {"fc.lora_magnitude_vector": drawn(5)}),
            "found 'fc.lora_magnitude",
        ),
        (lambda folder: adapter(folder, factors() | {"fc.lora_B.weight": drawn(5, 3)}), "A \\(r x in\\) and B"),
        (lambda folder: adapter(folder, factors() | {"fc.lora_A.weight": drawn(2)}), "A \\(r x in\\) and B"),
        (broken, "NaN or infinite"),
        (lying, "expected"),
        (linked, "a link that leads out of the folder"),
        (without_tensors, "beside adapter_config.json"),
    ],
)
def test_what_is_no_plain_lora_is_refused_in_one_line(tmp_path: Path, make: Any, words: str) -> None:
    folder = make(tmp_path)
    with pytest.raises(ExhumeError, match=words) as refused:
        [layer.change() for layer in read_adapter(folder).changes]
    assert "\n" not in str(refused.value)
