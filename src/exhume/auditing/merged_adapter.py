"""A LoRA adapter with its base model as two states of one network: before training, and after it.

What can be attacked are the layers that were trained as a whole. The change of an adapted layer is s B A: its rows lie
in the r rows of A, which were drawn before training, and are no combination of what the layer read. B is one, of what A
keeps of it: B = Σ_i c_i (A x_i)ᵀ, at most r numbers of each record. That says which records were trained on
(`exhume rank`), and no more than r numbers of what is in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from exhume.auditing.target import AuditTarget
from exhume.auditing.weights_folder import tensors_in
from exhume.errors import ExhumeError, UsageError
from exhume.formats.adapter import Adapter, read_adapter
from exhume.formats.contents import StoredArray
from exhume.observing.weights_file import WeightsFile

WHY = (
    "Adapted by LoRA of rank {rank}: its change lies in {rank} directions that were drawn before training, and holds "
    "at most {rank} of the {width} numbers that it read of each record. exhume rank tells members from others."
)


@dataclass(frozen=True, eq=False, repr=False)
class MergedAdapter:
    """`adapted` says of each adapted layer, by its name in the base model, what it tells."""

    after: WeightsFile
    before: Mapping[str, Tensor]
    adapted: Mapping[str, str]
    notes: tuple[str, ...]


def merge_adapter(folder: Path, base: str | None) -> MergedAdapter:
    found = read_adapter(folder)
    if base is None or base == "zero":
        named = f" ({found.base})" if found.base and not found.base.startswith(("/", "~", ".")) else ""
        raise UsageError(f"expected --initial BASE, the weights of the base model{named} of {folder}, found none")
    if found.tokens:
        raise UsageError(
            f"expected adapted dense layers and convolutions in {folder}, found an adapted embedding "
            f"{next(iter(found.tokens))!r}, which reads no numbers; exhume scan says which tokens it was trained on"
        )
    before = {name: _floating(value) for name, value in tensors_in(Path(base)).tensors.items()}
    after, adapted = dict(before), {}
    for layer in found.changes:
        name = _weight_in(before, layer.name, Path(base))
        change = torch.from_numpy(layer.change()).to(before[name].dtype)
        if change.shape != before[name].shape:
            raise ExhumeError(
                f"expected {name!r} of {list(change.shape)} in {base}, as the adapter changes it, found "
                f"{list(before[name].shape)}: another base model"
            )
        after[name] = before[name] + change
        adapted[name.removesuffix(".weight")] = WHY.format(rank=layer.rank, width=layer.width)
    for name, array in found.whole.items():
        own = _named(before, name)
        if own is None or tuple(before[own].shape) != array.shape:
            raise UsageError(
                f"expected the start of {name!r}, which was trained as a whole, in {base}, found none of its shape; "
                "add it there, or give that layer to exhume rank"
            )
        after[own] = _floating(_tensor(array))
    file = WeightsFile(found.file, "PEFT adapter (LoRA), merged", after, found.file.stat().st_size)
    return MergedAdapter(file, before, adapted, notes_of(found, Path(base)))


def target_of_adapter(target: AuditTarget, merged: MergedAdapter) -> AuditTarget:
    """What the file leaves to attack: the head, if it was trained as a whole, over features that adapters moved."""
    if target.head_name in merged.adapted or not bool(target.observation.weights.any()):
        raise ExhumeError(
            f"expected a head that was trained as a whole in {merged.after.path.parent}, found adapted layers only: of "
            "a record they hold at most as many numbers as their rank; exhume rank tells which records were trained on"
        )
    layers = tuple(replace(fact, why=merged.adapted.get(fact.name, fact.why)) for fact in target.layers)
    kept = tuple(layer for layer in target.observation.layers if layer.name not in merged.adapted)
    remade = target.remade
    bare = replace(target.observation, layers=kept, ends=None, initial_rows=None, initial_bias=None)
    return replace(
        target,
        observation=bare,  # attacks that read records off the change of a whole layer or network have none to read
        layers=layers,
        remade=None if remade is None else lambda change: target_of_adapter(remade(change), merged),
        no_silence=None if kept else "no layer but the head was trained as a whole",
        notes=(*merged.notes, *target.notes),
    )


def notes_of(found: Adapter, base: Path) -> tuple[str, ...]:
    ranks = sorted({layer.rank for layer in found.changes})
    shown = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    kept = sorted({name.rpartition(".")[0] for name in found.whole})
    also = f" Trained as a whole, and attacked: {', '.join(kept[:4])}." if kept else ""
    count = len(found.changes)
    return (
        f"A LoRA adapter of {shown} for {count} layer{'' if count == 1 else 's'} of {base.name}. The file holds the "
        f"change that training made of each layer, with its start.{also}",
    )


def _weight_in(base: Mapping[str, Tensor], layer: str, path: Path) -> str:
    found = _named(base, f"{layer}.weight")
    if found is None:
        raise ExhumeError(f"expected the adapted layer {layer!r} in {path}, found no such weight: another base model")
    return found


def _named(base: Mapping[str, Tensor], name: str) -> str | None:
    """A checkpoint may leave out the first parts of a name, or have more of them."""
    if name in base:
        return name
    some = [own for own in base if f".{own}".endswith(f".{name}") or f".{name}".endswith(f".{own}")]
    return some[0] if len(some) == 1 else None


def _tensor(array: StoredArray) -> Tensor:
    return torch.from_numpy(array.read().copy())


def _floating(values: Tensor) -> Tensor:
    """Halves are added in single precision."""
    return values.float() if values.is_floating_point() and values.dtype != torch.float64 else values
