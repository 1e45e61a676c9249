"""What is true of a victim, whatever an attack makes of it: where the obstacle is.

rank, gap    of the first layer's change [ΔW, Δb] since the true start: where its singular values fall most steeply,
             over the whole spectrum, rows and columns that did not change aside. n for plain gradient descent on
             n <= d + 1 independent inputs; no gap after Adam. Where weight decay shrank the start, what it left is
             taken off instead of the start: told from the part off the span of the records, where that shows a rank
silent       the share of (unit, record) pairs that are silent at both ends of training (first layer dense)
floor        ‖ΔW − AᵀΦ‖² / ‖ΔW‖² of the head's change with the best A, Φ the features of the records halfway between
             both ends and a constant one: what the last-layer equation leaves at the truth. `end`: at the end
p / (dn)     equations over unknowns: outputs of the head that repeat each other count once
drift        how far the features of the records moved since the start that the attacker knows (that of training, if
             none), over their size at the end
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from zoo.victim import State, Trained

STEEP = 30.0  # a smaller gap is that of any spectrum: up to 10 was seen for tables whose rows fill the space
SINGULAR = 1e-6  # of the largest singular value of a change in single precision: rounding


@dataclass(frozen=True)
class Spectrum:
    rank: int | None
    """None where there is no gap."""
    gap: float
    columns: int
    dead: int


@dataclass(frozen=True)
class Facts:
    n: int
    d: int
    first: str
    """The kind of the first layer and its shape."""
    rank: int | None
    gap: float
    dead_columns: int
    silent: float | None
    floor: float | None
    floor_at_end: float | None
    p: int
    ratio: float
    drift: float


def facts_of(trained: Trained) -> Facts:
    model, inputs = trained.model, trained.records.inputs
    first, head = ends_of(model, inputs)
    spectrum = spectrum_of_layer(trained, first)
    now, then = seen_by(model, head, inputs), seen_by(at(model, trained.before), head, inputs)
    change = change_of(model, trained.before, head)
    n, d = len(inputs), inputs[0].numel()
    p = int(torch.linalg.matrix_rank(change, rtol=SINGULAR)) * (change.shape[1])
    layer = model.get_submodule(first)
    return Facts(
        n=n,
        d=d,
        first=f"{type(layer).__name__} {list(weight_of(layer).shape)}",
        rank=spectrum.rank,
        gap=spectrum.gap,
        dead_columns=spectrum.dead,
        silent=_silent(trained, first),
        floor=left_over(change, (now + then) / 2),
        floor_at_end=left_over(change, now),
        p=p,
        ratio=p / (d * n),
        drift=float((now - _known(trained, head, then)).norm() / now.norm().clamp_min(1e-300)),
    )


def _known(trained: Trained, head: str, then: Tensor) -> Tensor:
    """The features of the records at the start that the attacker knows, where that is a whole one."""
    start = trained.known.start
    whole = start is not None and set(start) == set(trained.before)
    return seen_by(at(trained.model, start), head, trained.records.inputs) if start is not None and whole else then


def spectrum_of(change: Tensor) -> Spectrum:
    """
    >>> spectrum_of(torch.diag(torch.tensor([3.0, 2.0, 1e-6, 0.0]))).rank
    2
    """
    alive = (change != 0).any(dim=0)
    moved = change[(change != 0).any(dim=1)][:, alive]  # units that never fired, inputs that are always 0
    values = torch.linalg.svdvals(moved).clamp_min(torch.finfo(torch.float64).tiny)
    if len(values) < 2:
        return Spectrum(None, 1.0, change.shape[1], int((~alive).sum()))
    ratios = values[:-1] / values[1:].clamp_min(torch.finfo(torch.float64).eps * values[0])
    steepest = int(ratios.argmax())
    gap = float(ratios[steepest])
    return Spectrum(steepest + 1 if gap > STEEP else None, gap, change.shape[1], int((~alive).sum()))


def spectrum_of_layer(trained: Trained, layer: str) -> Spectrum:
    """Of the change of a layer that reads the records, with weight decay taken off where a rank shows it: no steps on
    n records leave more than n, so a steep fall behind that is no rank of theirs."""
    model, inputs = trained.model, trained.records.inputs
    plain = spectrum_of(change_of(model, trained.before, layer))
    if plain.rank is not None or not isinstance(model.get_submodule(layer), nn.Linear):
        return plain
    read = seen_by(model, layer, inputs)
    after, before = (extended(state, layer) for state in (model.state_dict(), trained.before))
    if len(read) >= read.shape[1] or after.shape[1] != read.shape[1] or not before.any():
        return plain
    basis = torch.linalg.svd(read, full_matrices=False)[2]
    after_off, before_off = (rows - (rows @ basis.T) @ basis for rows in (after, before))
    decayed = spectrum_of(after - float((after_off * before_off).sum() / before_off.square().sum()) * before)
    return decayed if decayed.rank is not None and decayed.rank <= len(read) else plain


def left_over(change: Tensor, features: Tensor) -> float | None:
    """The share of a change (k x p) outside of the span of features (n x p); None where that is everything."""
    if len(features) >= features.shape[1]:
        return None
    _, values, basis = torch.linalg.svd(features, full_matrices=False)
    basis = basis[values > 1e-12 * values[0]]
    outside = change - (change @ basis.T) @ basis
    return float(outside.square().sum() / change.square().sum().clamp_min(1e-300))


def ends_of(model: nn.Module, inputs: Tensor) -> tuple[str, str]:
    """The first layer with weights that training changes, and the last linear layer, by the order of their calls."""
    called: list[str] = []
    kinds = (nn.Linear, nn.Conv2d)
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, kinds)}
    hooks = [layer.register_forward_hook(lambda *_, name=name: called.append(name)) for name, layer in layers.items()]
    with torch.no_grad():
        model(inputs[:2])
    for hook in hooks:
        hook.remove()
    moving = [name for name in called if weight_of(layers[name]).requires_grad]
    return moving[0], next(name for name in reversed(called) if isinstance(layers[name], nn.Linear))


@torch.no_grad()
def seen_by(model: nn.Module, layer: str, inputs: Tensor) -> Tensor:
    """What a layer reads of each input, with a constant one for its bias, in double precision."""
    read: list[Tensor] = []
    hook = model.get_submodule(layer).register_forward_pre_hook(lambda _, given: read.append(given[0]))
    model(inputs)
    hook.remove()
    return torch.cat([read[0].double().flatten(start_dim=1), torch.ones(len(inputs), 1, dtype=torch.float64)], dim=1)


def at(model: nn.Module, state: State) -> nn.Module:
    """The same model with other weights; running statistics stay as they are at the end."""
    other = copy.deepcopy(model)
    kept = {name: value for name, value in model.state_dict().items() if "running" in name or "batches" in name}
    other.load_state_dict({**state, **kept})
    return other


def weight_of(layer: nn.Module) -> Tensor:
    assert isinstance(layer.weight, Tensor)
    return layer.weight


def change_of(model: nn.Module, before: State, layer: str) -> Tensor:
    """[ΔW, Δb] as a matrix with a row for each unit."""
    return extended(model.state_dict(), layer) - extended(before, layer)


def extended(state: State, layer: str) -> Tensor:
    """[W, b] with a row for each unit."""
    parts = [state[name].double() for name in (f"{layer}.weight", f"{layer}.bias") if name in state]
    return torch.cat([part.reshape(len(part), -1) for part in parts], dim=1)


def _silent(trained: Trained, first: str) -> float | None:
    layer = trained.model.get_submodule(first)
    if not isinstance(layer, nn.Linear):
        return None
    silent = torch.ones((), dtype=torch.bool)
    for model in (trained.model, at(trained.model, trained.before)):
        state = model.state_dict()
        rows = torch.cat([state[f"{first}.weight"], state[f"{first}.bias"][:, None]], dim=1).double()
        silent = silent & (seen_by(model, first, trained.records.inputs) @ rows.T < 0)
    return float(silent.double().mean())
