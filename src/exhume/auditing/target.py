"""What is audited: a model with its weights, brought into the form that attacks read.

Two ways lead here: a module with its state dict, whose features are what the head reads (`module_target.py`), and the
rows of V with an activation, for which no code is needed. What was trained is the change of the head from its start;
where the start is not known the head itself is all there is, with the start as noise in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.activations import activation as named_activation
from exhume.auditing.layers import LayerFact, facts_of_tensors
from exhume.errors import ExhumeError
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import Rows
from exhume.observation import Knowledge, Observation
from exhume.observing.of_head import observe_head


@dataclass(frozen=True, eq=False, repr=False)
class AuditTarget:
    """An observation, and what only the owner of the model has: the head itself, its start, its bias, the layers."""

    observation: Observation
    features: RidgeFeatures | ModuleFeatures
    """As published; those of the observation may be averaged with the features before training."""
    head_name: str
    head: Float[Tensor, "k p"]
    """The published weights of these features."""
    initial_head: Float[Tensor, "k p"] | None
    """None where the observation's weights are the head itself."""
    output_bias: Float[Tensor, " k"] | None
    """A bias of the head that is not one of the observation's weights; it is added to the outputs."""
    layers: tuple[LayerFact, ...]
    notes: tuple[str, ...]
    drift: float | None = None
    """How far the features of random inputs moved in training, over their size; None where their start is not known."""
    drift_of: Callable[[Float[Tensor, "n d"]], float] | None = None
    """The same of inputs that are given; None where nobody can tell."""
    no_silence: str | None = None
    """Why none of the dense layers has silent units to attack, whatever states of it are known."""
    in_front: str | None = None
    """The name of the layer with weights that was called last before the head; None where there is none."""
    remade: "Callable[[Callable[[Tensor], Tensor]], AuditTarget] | None" = None
    """The same model with other weights in the layers before the head that are known to have been trained: a function
    of each weight matrix and each bias. None where there are no such layers."""

    def outputs(self, inputs: Float[Tensor, "n d"], head: Float[Tensor, "k p"] | None = None) -> Float[Tensor, "n k"]:
        """What the model answers, with another head if one is given."""
        head = self.head if head is None else head
        found = torch.zeros(len(inputs), len(head), dtype=torch.float64)
        for block, values in self.features.feature_blocks(inputs):
            found += values.double() @ head[:, block].double().T
        return found if self.output_bias is None else found + self.output_bias.double()


def target_of_rows(
    rows: Rows,
    weights: Tensor,
    *,
    activation: str,
    bias: Float[Tensor, " p"] | None = None,
    initial: Tensor | Literal["zero"] | None = "zero",
    norm: float | None = None,
    image_shape: tuple[int, int, int] | None = None,
    head_name: str = "weights",
    tensors: Mapping[str, Tensor] | None = None,
) -> AuditTarget:
    """Weights θ over known features φ(Vx + b), without any code. `tensors` are all of the file, to be listed."""
    head = oriented(weights, rows.p, head_name)
    first = oriented(initial, rows.p, f"the initial {head_name}") if isinstance(initial, Tensor) else None
    if first is not None and first.shape != head.shape:
        raise ExhumeError(
            f"expected an initial head of shape {list(head.shape)}, found {list(first.shape)} in the initial weights"
        )
    knowledge = Knowledge(norm=norm, initial="known" if first is not None else "zero" if initial else "distribution")
    features = RidgeFeatures(rows, named_activation(activation), bias)
    observation = observe_head(features, head, knowledge, image_shape, initial=first)
    listed = {head_name: weights} if tensors is None else tensors
    return AuditTarget(
        observation=observation,
        features=features,
        head_name=head_name,
        head=head,
        initial_head=first,
        output_bias=None,
        layers=facts_of_tensors(listed, head_name, what_the_head_holds(observation)),
        notes=(),
    )


def oriented(weights: Tensor, p: int, name: str) -> Float[Tensor, "k p"]:
    """One row an output, whichever way round they were stored."""
    if not weights.is_floating_point() or weights.ndim not in (1, 2):
        kind = str(weights.dtype).removeprefix("torch.")
        raise ExhumeError(f"expected {name!r} as a matrix in floating point, found {kind} {list(weights.shape)}")
    matrix = torch.atleast_2d(weights)
    if matrix.shape[1] != p and matrix.shape[0] == p:
        matrix = matrix.T
    if matrix.shape[1] != p:
        raise ExhumeError(f"expected {name!r} with one weight for each of {p} features, found {list(weights.shape)}")
    return matrix.contiguous() if matrix.dtype in (torch.float32, torch.float64) else matrix.float()


def what_the_head_holds(observation: Observation) -> str:
    outputs, features = observation.weights.shape
    count = f"{outputs} x {features}" if outputs > 1 else f"{features}"
    known = observation.knowledge.initial != "distribution"
    change = "its change is" if known else "what training added to its unknown start is"
    return (
        f"The head: by gradient descent, {change} a combination of the features of the training samples, {count} "
        f"equations on {observation.d} numbers per sample."
    )
