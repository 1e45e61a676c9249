"""Does a recipe keep the change of the weights where attacks look for it?

Head: every step of gradient descent changes the head by a combination of the features *of that step*. An attack has the
features at the end, Φ(T), so what it can explain is P Δ with P the projector on the rows of Φ(T):

    outside = ||Δ − ΔP||² / ||Δ||²,        Δ = W(T) − W(0),

the projected loss at the true data: the floor that the drift of the features sets to every attack, and which no
candidate set but a spurious one goes below by much. Weight decay adds a multiple of W(0), so the check is repeated for
W(T) − c W(0) with the best c, which an attacker can find as well.

First layer: its change is a combination of its own inputs (rows for a linear layer, patches for a convolution),
exactly.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.networks.head import find_head, split_at_head, with_bias

RANK_CUTOFF = 1e-3  # of the largest singular value: above what the rounding of many float32 steps leaves


@dataclass(frozen=True)
class LayerSpan:
    """How much of a layer's change is outside the span of the layer's inputs."""

    outside: float
    """The share of ||Δ||² for the difference of the weights themselves."""
    scale: float
    """The multiple c of the initial weights whose difference from the trained ones is nearest to the span."""
    outside_rescaled: float
    """The same share for that c."""
    largest_angle: float
    """Degrees between the span and the row space of Δ (as many of its leading directions as the span has)."""
    rank: int
    """Of the span; where it is the dimension, the span is everything and says nothing."""
    dimension: int


@dataclass(frozen=True)
class SpanCheck:
    head: LayerSpan
    first: LayerSpan


def check_span(
    trained: nn.Module,
    initial: dict[str, Tensor],
    inputs: Tensor,
    head_name: str | None = None,
    first_name: str | None = None,
) -> SpanCheck:
    """Compares a trained module with its initial state dict; inputs are the training data in the model's own shape."""
    head = find_head(trained, head_name)
    first = _first_layer(trained, first_name)
    names = {id(layer): name for name, layer in trained.named_modules()}
    with torch.no_grad():
        features = split_at_head(trained, head, inputs)(inputs)
        seen = _rows_seen(trained, first, inputs)
    return SpanCheck(
        head=_layer_span(head, names[id(head)], initial, features),
        first=_layer_span(first, names[id(first)], initial, seen),
    )


def span_of(trained: Float[Tensor, "k h"], initial: Float[Tensor, "k h"], rows: Float[Tensor, "m h"]) -> LayerSpan:
    """The check for two matrices and the rows that should span their difference."""
    trained, initial, rows = trained.double(), initial.double(), rows.double()
    basis = _basis(rows)
    change = trained - initial
    trained_out, initial_out = _outside(trained, basis), _outside(initial, basis)
    energy = float(initial_out.square().sum())
    tells = energy > 1e-20 * float(initial.square().sum())  # else the span holds all of the start
    scale = float((trained_out * initial_out).sum()) / energy if tells else 1.0
    return LayerSpan(
        outside=_share(trained_out - initial_out, change),
        scale=scale,
        outside_rescaled=_share(trained_out - scale * initial_out, trained - scale * initial),
        largest_angle=_largest_angle(change, basis),
        rank=basis.shape[1],
        dimension=rows.shape[1],
    )


def _layer_span(layer: nn.Module, name: str, initial: dict[str, Tensor], rows: Tensor) -> LayerSpan:
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    start = with_bias(initial[f"{name}.weight"], initial.get(f"{name}.bias"))
    if layer.bias is not None:
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
    return span_of(with_bias(layer.weight, layer.bias), start, rows)


def _first_layer(model: nn.Module, name: str | None) -> nn.Module:
    layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)}
    if name is None and layers:
        return next(iter(layers.values()))
    if name is None or name not in layers:
        raise UsageError(f"expected a first layer out of {', '.join(layers) or 'linear ones'}, found {name!r}")
    return layers[name]


def _rows_seen(model: nn.Module, layer: nn.Module, inputs: Tensor) -> Float[Tensor, "m d"]:
    """The vectors that the rows of a layer's weight are multiplied with, on its first call."""
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    try:
        model(inputs)
    finally:
        handle.remove()
    if isinstance(layer, nn.Conv2d):
        if layer.groups != 1 or isinstance(layer.padding, str):
            raise UsageError("expected a convolution without groups and with padding in pixels, found another one")
        patches = torch.nn.functional.unfold(
            seen[0], layer.kernel_size, layer.dilation, layer.padding, layer.stride
        )  # n x patch x positions
        return patches.transpose(1, 2).flatten(end_dim=1)
    return seen[0].reshape(-1, seen[0].shape[-1])


def _basis(rows: Float[Tensor, "m d"]) -> Float[Tensor, "d r"]:
    _, values, directions = torch.linalg.svd(rows, full_matrices=False)
    return directions[values > 1e-7 * values[0]].T


def _outside(matrix: Float[Tensor, "k d"], basis: Float[Tensor, "d r"]) -> Float[Tensor, "k d"]:
    return matrix - (matrix @ basis) @ basis.T


def _share(part: Tensor, whole: Tensor) -> float:
    energy = float(whole.square().sum())
    return float(part.square().sum()) / energy if energy > 0 else 0.0


def _largest_angle(change: Float[Tensor, "k d"], basis: Float[Tensor, "d r"]) -> float:
    if not change.any():
        return 0.0
    _, values, directions = torch.linalg.svd(change, full_matrices=False)
    own = directions[values > RANK_CUTOFF * values[0]][: basis.shape[1]].T
    # the sine keeps its digits where the cosine is rounded to 1
    sine = torch.linalg.matrix_norm(own - basis @ (basis.T @ own), ord=2).clamp(max=1)
    return float(torch.rad2deg(torch.asin(sine)))
