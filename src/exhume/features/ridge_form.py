"""The form of the features before a head, as far as it matters: are they φ(Wx + b)?

For φ(Wx + b) exhume has an exact attack. A module is a program, so its form cannot be read off; it can be tried. Each
linear layer with as many inputs as the data and as many outputs as the head reads is put together with each activation,
alone and followed by each batch norm of that size (whose running statistics make it a part of W and b), and compared
with what the module makes of random inputs at three scales. Two maps that agree there to rounding are the same for any
purpose here.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exhume.activations import ACTIVATIONS, Activation
from exhume.errors import ExhumeError
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.networks.head import PenultimateFeatures

PROBES = 4
SCALES = (0.1, 1.0, 4.0)  # of rows of norm √d: ReLU and GELU, or tanh and erf, differ at one of them
AGREES = 1e-5


@dataclass(frozen=True, eq=False)
class RidgeForm:
    """Features φ(Wx + b) of a module. `normed`: W and b are those of a layer and of the batch norm behind it, so that
    a change of W is no longer a combination of samples."""

    features: RidgeFeatures
    normed: bool


@torch.no_grad()
def as_ridge(network: PenultimateFeatures) -> RidgeForm | None:
    """What a network's head reads as φ(Wx + b), or None where it has another form."""
    model, kind, d = network.model, network.head.weight, math.prod(network.input_shape)
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, nn.Linear) and (layer.in_features, layer.out_features) == (d, kind.shape[1])
    ]
    if not layers:
        return None
    stream = torch.Generator().manual_seed(0)
    rows = torch.randn(PROBES, d, generator=stream).to(kind)
    probes = torch.cat([scale * rows for scale in SCALES])
    seen = network(probes.reshape(-1, *network.input_shape))
    if not bool(seen.isfinite().all()):
        raise ExhumeError("expected a network that makes finite features of random inputs, found NaN or infinity")
    for layer in layers:
        for weight, bias, normed in _affine_maps(model, layer):
            linear = nn.functional.linear(probes, weight, bias)
            for activation in ACTIVATIONS.all().values():
                if _agree(activation, linear, seen):
                    shift = bias if bias.any() else None
                    return RidgeForm(RidgeFeatures(HeldRows(weight), activation, shift, trained=True), normed)
    return None


AffineMap = tuple[Float[Tensor, "p d"], Float[Tensor, " p"], bool]


def _affine_maps(model: nn.Module, layer: nn.Linear) -> Iterator[AffineMap]:
    """W and b of a linear layer, as it is and with every batch norm that may follow it."""
    weight = layer.weight.detach().clone()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().clone()
    yield weight, bias, False
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm1d) and norm.num_features == len(weight) and norm.running_mean is not None:
            yield _normed(weight, bias, norm)


def _normed(weight: Float[Tensor, "p d"], bias: Float[Tensor, " p"], norm: nn.BatchNorm1d) -> AffineMap:
    """γ (Wx + b − μ) / √(σ² + ε) + β, as W′x + b′."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    slope = (variance.to(weight) + norm.eps).rsqrt()
    shift = weight.new_zeros(len(bias)) if norm.bias is None else norm.bias.detach().to(weight)
    if norm.weight is not None:
        slope = slope * norm.weight.detach().to(weight)
    return slope[:, None] * weight, slope * (bias - mean.to(weight)) + shift, True


def halfway_ridge(end: RidgeFeatures, start: RidgeFeatures) -> RidgeFeatures:
    """Both of the same φ, with W and b in the middle of their ways: closer to the features that a head grew on."""
    biases = [one.bias for one in (end, start) if one.bias is not None]
    bias = sum(biases[1:], biases[0]) / 2 if biases else None
    return replace(end, rows=HeldRows((_values(end) + _values(start)) / 2), bias=bias)


def some_ridge(features: RidgeFeatures, chosen: Int[Tensor, " q"]) -> RidgeFeatures:
    bias = None if features.bias is None else features.bias[chosen]
    return replace(features, rows=HeldRows(_values(features)[chosen]), bias=bias)


def _values(features: RidgeFeatures) -> Float[Tensor, "p d"]:
    assert features.rows.held is not None
    return features.rows.held


def _agree(activation: Activation, linear: Float[Tensor, "m p"], seen: Float[Tensor, "m p"]) -> bool:
    made = activation.value(linear.clone())
    return bool(torch.allclose(made, seen, rtol=AGREES, atol=AGREES * float(seen.abs().max())))
