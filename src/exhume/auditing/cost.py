"""What a defence costs the model: how far its answers move, and how many of its decisions are still right.

Measured on the records where they are given, otherwise on random rows. A decision is the sign of one output, or the
largest of several.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.auditing.records import Control
from exhume.auditing.target import AuditTarget
from exhume.auditing.what_if import Defended
from exhume.experiments.truth import Truth

PROBES = 256


@dataclass(frozen=True)
class Cost:
    """`output_change` is ||f - f*|| / ||f*||; the others are shares of the rows."""

    output_change: float
    agreement: float
    accuracy: float | None
    control_accuracy: float | None


def cost_of(defended: Defended, target: AuditTarget, truth: Truth | None, control: Control | None) -> Cost:
    inputs = _probes(target) if truth is None else truth.inputs.to(target.head.dtype)
    before, after = target.outputs(inputs), _outputs(defended, inputs)
    size = float(before.norm())
    labels = None if truth is None else _classes(truth.labels, truth.class_index, before.shape[1])
    other = None
    if control is not None and control.labels is not None and labels is not None:
        shown = _outputs(defended, control.inputs.to(target.head.dtype))
        wanted = _classes(control.labels, control.labels.long(), shown.shape[1])
        other = None if wanted is None else _share(_decisions(shown) == wanted)
    return Cost(
        output_change=float((after - before).norm()) / size if size > 0 else 0.0,
        agreement=_share(_decisions(after) == _decisions(before)),
        accuracy=None if labels is None else _share(_decisions(after) == labels),
        control_accuracy=other,
    )


def _outputs(defended: Defended, inputs: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    target = defended.target
    shown = target.outputs(inputs, defended.head)
    if defended.keeps_bias or target.output_bias is None:
        return shown
    return shown - target.output_bias.double()


def _probes(target: AuditTarget) -> Float[Tensor, "m d"]:
    d = target.observation.d
    norm = target.observation.knowledge.norm or d**0.5
    rows = torch.randn(PROBES, d, generator=torch.Generator().manual_seed(0))
    return (rows * (norm / rows.norm(dim=1, keepdim=True))).to(target.head.dtype)


def _decisions(outputs: Float[Tensor, "n k"]) -> Tensor:
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(dim=1)


def _classes(labels: Tensor, class_index: Tensor, outputs: int) -> Tensor | None:
    """Labels as decisions: the sign for one output, the class for several; None where they are neither."""
    if outputs == 1:
        signs = bool((labels.abs() == 1).all())
        bits = bool(((labels == 0) | (labels == 1)).all())
        return (labels > 0).long() if signs or bits else None
    known = bool((class_index >= 0).all()) and int(class_index.max()) < outputs
    return class_index.long() if known else None


def _share(equal: Tensor) -> float:
    return float(equal.double().mean())


def cost_line(cost: Cost | None) -> dict[str, Any]:
    """As the page lists it; None where it could not be measured."""
    names = ("output_change", "agreement", "accuracy", "control_accuracy")
    return dict.fromkeys(names) if cost is None else asdict(cost)
