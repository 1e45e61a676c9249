"""Features of any network: what its last linear layer reads, as a pure function of flat inputs.

Let g: R^d → R^p be the map from an input to the activations in front of the head. It acts on each row by itself, so
its Jacobian is block diagonal, one p × d block J_i a row. An attack needs three things of it:

- *values*  g(X), m × p;
- *push*    J_i dx_i for a direction a row (forward mode);
- *pull*    J_iᵀ u_i for a cotangent a row (reverse mode).

The pull is an ordinary backward sweep. It is linear in u, so its own derivative in u is the push: one more backward
sweep over the recorded pull, which needs no second forward sweep. Rows are taken `chunk` at a time. If one chunk holds
all of them the record is kept for every product at a point; otherwise each chunk is recorded again, and memory stays
that of one chunk.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume.features.network_source import NetworkSource
from exhume.networks.head import PenultimateFeatures, find_head, split_at_head
from exhume.raw_bytes import raw_bytes

CHUNK = 64


@dataclass(frozen=True, eq=False, repr=False)
class ModuleFeatures:
    """g as a function of flat rows, or some of its coordinates.

    `function` gives all coordinates; `chosen` are those in use, in this order (None: all of them). `groups` names the
    group that each coordinate in use belongs to, such as its channel: coordinates of one group share their weights, so
    only whole groups are held out. `source` is what all coordinates can be made from again; None where nobody kept it.
    `networks` are those whose mean the function is, the published one last; none for any other function. `constant`:
    the last coordinate of the function is always 1, the feature of a head's bias.
    """

    function: Callable[[Tensor], Tensor]
    d: int
    p: int
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"
    chosen: Int[Tensor, " p"] | None = None
    groups: Int[Tensor, " p"] | None = None
    chunk: int = CHUNK
    source: NetworkSource | None = None
    networks: tuple[PenultimateFeatures, ...] = ()
    constant: bool = False
    note: str | None = None
    """What was done about dropout and batch norm, if there is any."""
    kin: Float[Tensor, "N d"] | None = None
    """Rows of the same kind, where an attacker has some: a search begins where such rows lie."""

    is_network: ClassVar[bool] = True
    bias: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise UsageError(f"expected at least 1 row in a chunk, found {self.chunk}")
        if self.groups is not None and self.groups.shape != (self.p,):
            raise UsageError(f"expected a group for each of {self.p} features, found {list(self.groups.shape)}")

    @property
    def sign_blind(self) -> bool:
        """Networks have biases, or units of both signs: the sign of an input is part of what they read."""
        return False

    @property
    def linear(self) -> bool:
        """Whether g is linear in the inputs, up to a constant, tried on two of them: a head that nothing is before."""
        pair = torch.randn(2, self.d, generator=torch.Generator().manual_seed(0)).to(self.dtype)
        with torch.no_grad():
            one, other, both, none = self.evaluate(torch.stack([*pair, pair.sum(dim=0), torch.zeros_like(pair[0])]))
        return bool(torch.allclose(one + other, both + none, rtol=1e-4, atol=1e-5 * float(both.abs().max())))

    @property
    def norm_blind(self) -> bool:
        """Whether g(t x) = t g(x) for t > 0, tried on one input: weights then cannot tell a norm from a coefficient."""
        probe = torch.randn(1, self.d, generator=torch.Generator().manual_seed(0)).to(self.dtype)
        with torch.no_grad():
            once, twice = self.evaluate(probe), self.evaluate(2 * probe)
        return bool(torch.allclose(twice, 2 * once, rtol=1e-4, atol=1e-5 * float(once.abs().max())))

    @property
    def description(self) -> str:
        if self.linear:
            return "the inputs, or a linear function of them"
        return "the trained layers before the head" + (f" ({self.source.factory})" if self.source else "")

    def __call__(self, inputs: Float[Tensor, "m d"]) -> Float[Tensor, "m p"]:
        """g(X), chunk by chunk: only the m × p results are kept."""
        values = torch.empty(len(inputs), self.p, dtype=inputs.dtype, device=inputs.device)
        with torch.no_grad():
            for rows in self.chunks(len(inputs)):
                values[rows] = self.evaluate(inputs[rows])
        return values

    def feature_blocks(self, inputs: Float[Tensor, "m d"]) -> Iterator[tuple[slice, Float[Tensor, "m p"]]]:
        """All coordinates as one block: a network gives them together."""
        yield slice(0, self.p), self(inputs)

    def linearise(self, inputs: Float[Tensor, "m d"]) -> "Linearisation":
        """g and its Jacobian at a point."""
        return Linearisation(self, inputs)

    def part(self, coordinates: slice | Int[Tensor, " q"]) -> "ModuleFeatures":
        """Some coordinates only. The network is evaluated as a whole all the same."""
        everything = torch.arange(self.p) if self.chosen is None else self.chosen
        chosen = everything[coordinates].clone()
        groups = None if self.groups is None else self.groups[coordinates].clone()
        return replace(self, chosen=chosen, groups=groups, p=len(chosen))

    def keeping(self, kept: Int[Tensor, " kept"]) -> "ModuleFeatures":
        """What is left of them after pruning."""
        return self.part(kept)

    def held_out(self, share: float, generator: torch.Generator) -> Int[Tensor, " q"]:
        """Coordinates of whole groups, drawn at random, that make up about this share; at least one group is left."""
        groups = torch.arange(self.p) if self.groups is None else self.groups
        names = torch.unique(groups)
        count = min(round(share * len(names)), len(names) - 1)
        drawn = names[torch.randperm(len(names), generator=generator)[:count]]
        return torch.isin(groups, drawn).nonzero()[:, 0]

    def telltale(self, like: Tensor) -> Iterator[bytes]:
        """A network is known by what it makes of one input, in the precision of `like`."""
        probe = torch.randn(1, self.d, generator=torch.Generator().manual_seed(0))
        yield raw_bytes(self(probe.to(like)))

    def chunks(self, m: int) -> Iterator[slice]:
        for start in range(0, m, self.chunk):
            yield slice(start, min(start + self.chunk, m))

    def evaluate(self, inputs: Float[Tensor, "m d"]) -> Float[Tensor, "m p"]:
        """g of one chunk, which can be differentiated (twice, for the push)."""
        values = self.function(inputs)
        return values if self.chosen is None else values[:, self.chosen.to(values.device)]


@dataclass(frozen=True, eq=False, repr=False)
class _Record:
    """One chunk's forward sweep, recorded."""

    inputs: Float[Tensor, "c d"]
    values: Float[Tensor, "c p"]

    def pull(self, cotangents: Float[Tensor, "c p"]) -> Float[Tensor, "c d"]:
        return _gradient(self.values, self.inputs, cotangents)

    def push(self, directions: Float[Tensor, "c d"]) -> Float[Tensor, "c p"]:
        cotangents = torch.zeros_like(self.values, requires_grad=True)
        with torch.enable_grad():
            pulled = _gradient(self.values, self.inputs, cotangents, recorded=True)
        return _gradient(pulled, cotangents, directions)


class Linearisation:
    """g at m inputs with its Jacobian's products."""

    def __init__(self, features: ModuleFeatures, inputs: Float[Tensor, "m d"]) -> None:
        self.features = features
        self.inputs = inputs.detach()
        self._kept: _Record | None = None
        self._values: Tensor | None = None
        if len(inputs) <= features.chunk:
            self._kept = self._record(slice(0, len(inputs)))
            self._values = self._kept.values.detach()

    @property
    def values(self) -> Float[Tensor, "m p"]:
        if self._values is None:
            self._values = self.features(self.inputs)
        return self._values

    def push(self, directions: Float[Tensor, "m d"]) -> Float[Tensor, "m p"]:
        """J_i dx_i for each row."""
        return torch.cat([record.push(directions[rows]) for rows, record in self._records()])

    def pull(self, cotangents: Float[Tensor, "m p"]) -> Float[Tensor, "m d"]:
        """J_iᵀ u_i for each row."""
        return torch.cat([record.pull(cotangents[rows]) for rows, record in self._records()])

    def _records(self) -> Iterator[tuple[slice, _Record]]:
        if self._kept is not None:
            yield slice(0, len(self.inputs)), self._kept
            return
        for rows in self.features.chunks(len(self.inputs)):
            yield rows, self._record(rows)

    def _record(self, rows: slice) -> _Record:
        with torch.enable_grad():
            inputs = self.inputs[rows].clone().requires_grad_()
            return _Record(inputs, self.features.evaluate(inputs))


def _gradient(outputs: Tensor, inputs: Tensor, cotangents: Tensor, recorded: bool = False) -> Tensor:
    """Coordinates that do not depend on the inputs at all have the derivative zero."""
    if not outputs.requires_grad:
        return torch.zeros_like(inputs)
    found = torch.autograd.grad(
        outputs,
        inputs,
        cotangents,
        retain_graph=True,
        create_graph=recorded,
        allow_unused=True,
        materialize_grads=True,
    )[0]
    return found if recorded else found.detach()


def penultimate_features(
    module: nn.Module, head: str, input_shape: tuple[int, ...], *, bias: bool = False, chunk: int = CHUNK
) -> ModuleFeatures:
    """What the linear layer called `head` reads, for flat rows that the network sees in `input_shape`.

    The module is copied and put into evaluation mode: dropout does nothing there, batch norm uses its running
    statistics. With `bias`, a constant feature 1 is added at the end, whose weight is the head's bias.
    """
    layer = find_head(module, head)
    kind = layer.weight
    split = split_at_head(module, layer, torch.zeros((2, *input_shape), dtype=kind.dtype, device=kind.device))
    tensors = {**dict(split.named_parameters()), **dict(split.named_buffers())}

    def function(inputs: Tensor) -> Tensor:
        weights = {
            name: value.to(device=inputs.device, dtype=inputs.dtype if value.is_floating_point() else None)
            for name, value in tensors.items()
        }
        values = torch.func.functional_call(split, weights, (inputs.reshape(len(inputs), *input_shape),))
        return torch.cat([values, values.new_ones(len(values), 1)], dim=1) if bias else values

    d, p = math.prod(input_shape), layer.in_features + bias
    return ModuleFeatures(function, d, p, kind.dtype, kind.device, chunk=chunk, networks=(split,), constant=bias)


def averaged_features(first: ModuleFeatures, second: ModuleFeatures) -> ModuleFeatures:
    """(g₀ + g_T) / 2: closer to what the head was trained on where features drifted between two known weights."""
    if (first.d, first.p) != (second.d, second.p):
        raise UsageError(
            f"expected two feature maps of the same sizes, found d = {first.d}, p = {first.p} and "
            f"d = {second.d}, p = {second.p}"
        )

    def function(inputs: Tensor) -> Tensor:
        return (first.evaluate(inputs) + second.evaluate(inputs)) / 2

    whole = first.chosen is None and second.chosen is None
    networks = (*first.networks, *second.networks) if whole else ()
    return replace(second, function=function, chosen=None, source=None, networks=networks)


def axis_groups(shape: tuple[int, ...], axis: int, constant: bool = False) -> Int[Tensor, " p"]:
    """Names coordinates of a flattened tensor by their place along one axis: its channel, or its embedding coordinate.

    With `constant` there is one more feature, in a group of its own.

    >>> axis_groups((2, 3), 0).tolist(), axis_groups((2, 3), 1).tolist()
    ([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
    """
    places = torch.arange(shape[axis]).reshape([-1 if other == axis % len(shape) else 1 for other in range(len(shape))])
    groups = places.expand(shape).reshape(-1)
    return torch.cat([groups, groups.new_full((int(constant),), shape[axis])])
