"""What dense layers read spans their change: how much of it a set of pictures leaves unexplained.

Gradient descent changes a dense layer by Σ_t Σ_i δ_i(t) h_i(t)ᵀ, where h_i(t) is what it reads of sample i at step t.
Behind convolutions that were trained h_i moves, but in LeNet on digits mostly along itself: halfway between both ends
of training its direction is that at the end to a cosine of 0.99. So the rows of the change D are nearly combinations
of the directions h_i / |h_i| taken there, and for pictures X the share

    r(X) = min_C ||D − C Ĥ(X)||² / ||D||²

is small where X are the samples. C is free: nothing is assumed of loss, labels, rate or steps.
"""

import copy
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.attacks.foundation.pass_counter import PassCounter
from exhume.features.gradient import halfway
from exhume.network_ends import NetworkEnds

RIDGE = 1e-4  # of the squared unit length of a direction: for samples that a layer reads alike
FOLLOWING = 0.125  # a layer behind the first dense one counts so much: what it reads moved more


@dataclass(frozen=True, eq=False, repr=False)
class DenseSpans:
    """`changes` of dense layers by name, in the order of their calls; `network` has the weights halfway.

    A pass of `counter` is an evaluation of the network.
    """

    network: nn.Module
    input_shape: tuple[int, ...]
    changes: dict[str, Float[Tensor, "_ _"]]
    counter: PassCounter = field(default_factory=PassCounter)

    @classmethod
    def of(cls, ends: NetworkEnds, input_shape: tuple[int, ...], like: Tensor) -> "DenseSpans":
        """No layer is left where none changed that reads flat features behind a convolution."""
        network = copy.deepcopy(ends.trained)
        network.load_state_dict(halfway(ends.started.state_dict(), ends.trained.state_dict()))
        network = network.eval().requires_grad_(False).to(like)
        changes = {}
        for name in _behind_convolutions(network, like.new_zeros(2, *input_shape)):
            last, first = (end.get_parameter(f"{name}.weight").detach() for end in (ends.trained, ends.started))
            if not torch.equal(last, first):
                changes[name] = (last - first).to(like)
        return cls(network, input_shape, changes)

    @property
    def passes(self) -> float:
        return self.counter.total

    @property
    def first(self) -> str:
        return next(iter(self.changes))

    def on_units(self, units: Tensor, *, alone: bool = False) -> "DenseSpans":
        """With these rows of the first layer's change; `alone`: and no other layer."""
        others = {} if alone else self.changes
        return replace(self, changes={**others, self.first: self.changes[self.first][units]})

    def read(self, pictures: Float[Tensor, "m d"]) -> dict[str, Float[Tensor, "m _"]]:
        """What each layer reads of pictures, each scaled to length 1."""
        self.counter.total += 1
        seen = _inputs(self.network, tuple(self.changes), pictures.reshape(-1, *self.input_shape))
        return {name: values / values.norm(dim=1, keepdim=True).clamp_min(1e-12) for name, values in seen.items()}

    def combined(self, name: str, directions: Float[Tensor, "m _"]) -> Float[Tensor, "u m"]:
        """C, the combinations that explain most of a layer's change."""
        gram = directions @ directions.T + RIDGE * torch.eye(len(directions)).to(directions)
        return torch.linalg.solve(gram, directions @ self.changes[name].T).T

    def shares(self, pictures: Float[Tensor, "m d"]) -> dict[str, Float[Tensor, ""]]:
        """r(X) of each layer. C is at its minimum, so that gradients need not know how it moves."""
        left = {}
        for name, directions in self.read(pictures).items():
            change = self.changes[name]
            rest = change - self.combined(name, directions.detach()) @ directions
            left[name] = rest.square().sum() / change.square().sum()
        return left

    def left(self, pictures: Float[Tensor, "m d"]) -> Float[Tensor, ""]:
        shares = self.shares(pictures)
        return shares[self.first] + FOLLOWING * sum(share for name, share in shares.items() if name != self.first)


def _behind_convolutions(network: nn.Module, probe: Tensor) -> list[str]:
    """Dense layers that read flat features, called after a convolution; the last of them, the head, is left out."""
    called: list[tuple[str, bool]] = []

    def note(name: str, dense: bool) -> object:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            if not dense or given[0].ndim == 2:
                called.append((name, dense))

        return hook

    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, (nn.Linear, *kinds))]
    handles = [
        layer.register_forward_pre_hook(note(name, isinstance(layer, nn.Linear)))  # type: ignore[arg-type]
        for name, layer in layers
    ]
    try:
        with torch.no_grad():
            network(probe)
    finally:
        for handle in handles:
            handle.remove()
    first = next((place for place, (_, dense) in enumerate(called) if not dense), len(called))
    names = [name for name, dense in called[first:] if dense]
    return [name for name in dict.fromkeys(names) if names.count(name) == 1][:-1]


def _inputs(network: nn.Module, names: tuple[str, ...], pictures: Tensor) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}

    def take(name: str) -> object:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            seen[name] = given[0]

        return hook

    handles = [network.get_submodule(name).register_forward_pre_hook(take(name)) for name in names]  # type: ignore[arg-type]
    try:
        network(pictures)
    finally:
        for handle in handles:
            handle.remove()
    return seen
