"""A LoRA adapter as peft writes it: a folder with `adapter_config.json` and the tensors. Nothing of it is run.

An adapted layer of a frozen base model answers W x + s B A x, with A (r × in) drawn before training and B (out × r) at
zero. Only A and B are trained, so the file holds the change of the layer, ΔW = s B A, with its start: no second state
is needed. s = alpha / r, or alpha / √r (`use_rslora`).

Of an embedding it is A (r × tokens) that begins at zero: a column of a token that no training text had stays there.
Layers that were trained as a whole (`modules_to_save`, mostly a head) are in the file as they are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import ExhumeError, UsageError
from exhume.formats.contents import StoredArray
from exhume.formats.json_file import read_json_object
from exhume.formats.links import own_file
from exhume.formats.reading import read_contents

CONFIG = "adapter_config.json"
TENSORS = ("adapter_model.safetensors", "adapter_model.bin")
MERGE = "merge it where you trust it (model.merge_and_unload()), and give the merged weights"
_PREFIX = "base_model.model."
_WRAPPED = ".base_layer."
_DOWN, _UP = ".lora_A", ".lora_B"
_TOKENS = (".lora_embedding_A", ".lora_embedding_B")
_ZERO_STARTS = ("gaussian", "eva")
"""Words for `init_lora_weights`, beside true, with which B begins at zero. Others change the base model as well."""
_OTHER_CHANGES = ("use_dora", "layer_replication", "use_qalora", "use_bdlora")


@dataclass(frozen=True, eq=False)
class LowRank:
    """One adapted layer, dense or a convolution: ΔW = `scale` · B · A."""

    name: str
    down: StoredArray
    up: StoredArray
    scale: float
    transposed: bool
    """Whether the base model keeps this weight as inputs x outputs (GPT-2's Conv1D)."""

    @property
    def rank(self) -> int:
        return self.down.shape[0]

    @property
    def width(self) -> int:
        """Numbers that a unit of the layer reads."""
        return math.prod(self.down.shape[1:])

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """A and B as matrices."""
        found = [np.asarray(part.read(), dtype=np.float64) for part in (self.down, self.up)]
        if not all(np.isfinite(part).all() for part in found):
            raise ExhumeError(f"expected finite numbers of the adapted layer {self.name!r}, found NaN or infinite ones")
        return found[0].reshape(self.rank, -1), found[1].reshape(-1, self.rank)

    def change(self) -> np.ndarray:
        """ΔW as the base model keeps this weight."""
        down, up = self.factors()
        made = (self.scale * up @ down).reshape(len(up), *self.down.shape[1:])
        return made.T if self.transposed else made


@dataclass(frozen=True, eq=False)
class Adapter:
    """`file` has the tensors. `tokens` are A of adapted embeddings, `whole` all tensors that were trained as a whole;
    both under the names of the base model."""

    file: Path
    base: str | None
    changes: tuple[LowRank, ...]
    tokens: Mapping[str, StoredArray]
    whole: Mapping[str, StoredArray]


def is_adapter(path: Path) -> bool:
    return path.is_dir() and (path / CONFIG).is_file()


def read_adapter(folder: Path) -> Adapter:
    config = read_json_object(own_file(folder, CONFIG))
    _check_kind(config, folder)
    file = next((own_file(folder, name) for name in TENSORS if (folder / name).is_file()), None)
    if file is None:
        raise ExhumeError(f"expected {' or '.join(TENSORS)} beside {CONFIG} in {folder}, found neither")
    arrays = read_contents(file, "safetensors" if file.suffix == ".safetensors" else "torch").arrays
    named = {name.removeprefix(_PREFIX).replace(_WRAPPED, "."): array for name, array in arrays.items()}
    down, up, first, second = (_parts(named, part) for part in (_DOWN, _UP, *_TOKENS))
    whole = {name: array for name, array in named.items() if "lora_" not in name}
    if len(down) + len(up) + len(first) + len(second) + len(whole) != len(named):
        strange = next(name for name in named if name not in whole and _layer_of(name) is None)
        raise UsageError(f"expected A and B of LoRA and whole layers in {file}, found {strange[:80]!r}; {MERGE}")
    lost = sorted(set(down) ^ set(up) | set(first) ^ set(second))
    if lost or not down | first:
        found = f"one of them for {lost[0][:80]!r}" if lost else "none"
        raise ExhumeError(f"expected A and B of each adapted layer in {file}, found {found}")
    changes = tuple(_change(name, down[name], up[name], config, file) for name in down)
    base = config.get("base_model_name_or_path")
    return Adapter(file, base if isinstance(base, str) and base else None, changes, first, whole)


def _layer_of(name: str, parts: tuple[str, ...] = (_DOWN, _UP, *_TOKENS)) -> str | None:
    """The layer of `fc.lora_A.weight` or `fc.lora_A.default.weight`; None for what is no factor."""
    for part in parts:
        layer, found, after = name.partition(part)
        if found and layer and (after in ("", ".weight", ".default", ".default.weight")):
            return layer
    return None


def _parts(named: Mapping[str, StoredArray], part: str) -> dict[str, StoredArray]:
    return {layer: array for name, array in named.items() if (layer := _layer_of(name, (part,))) is not None}


def _check_kind(config: Mapping[str, Any], folder: Path) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise UsageError(f"expected a LoRA adapter in {folder}, found one of kind {str(kind)[:20]!r}; {MERGE}")
    odd = next((key for key in _OTHER_CHANGES if config.get(key)), None)
    if odd is not None:
        raise UsageError(f"expected plain LoRA in {folder}, found {odd}; {MERGE}")
    start = config.get("init_lora_weights", True)
    if start is not None and start is not True and start not in _ZERO_STARTS:
        found = f"init_lora_weights {str(start)[:20]!r}"
        raise UsageError(f"expected LoRA whose B began at zero in {folder}, found {found}; {MERGE}")


def _change(name: str, down: StoredArray, up: StoredArray, config: Mapping[str, Any], file: Path) -> LowRank:
    sides = len(down.shape)
    fits = sides == len(up.shape) in (2, 3, 4, 5) and up.shape[1:] == (down.shape[0], *(1,) * (sides - 2))
    if not fits or 0 in (*down.shape, *up.shape):
        raise UsageError(
            f"expected A (r x in) and B (out x r) of {name[:80]!r} in {file}, found {down.shape} and {up.shape}; "
            f"{MERGE}"
        )
    scale = _alpha(name, config, file) / (math.sqrt(down.shape[0]) if config.get("use_rslora") else down.shape[0])
    return LowRank(name, down, up, scale, bool(config.get("fan_in_fan_out")) and sides == 2)


def _alpha(name: str, config: Mapping[str, Any], file: Path) -> float:
    """Patterns are names of layers, or their ends; peft also takes regular expressions, which are not tried here."""
    alpha, patterns = config.get("lora_alpha"), config.get("alpha_pattern")
    if isinstance(patterns, dict):
        if not all(key.replace(".", "_").isidentifier() for key in patterns):
            raise UsageError(f"expected names in alpha_pattern beside {file}, found regular expressions; {MERGE}")
        alpha = next((own for key, own in patterns.items() if f".{name}".endswith(f".{key}")), alpha)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise ExhumeError(f"expected a number lora_alpha beside {file}, found {str(alpha)[:40]!r}")
    return float(alpha)
