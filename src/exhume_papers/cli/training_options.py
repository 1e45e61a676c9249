"""How a victim is trained: options that the commands of `exhume train` share."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from exhume_papers.victims.privacy import Privacy


@dataclass(frozen=True)
class TrainingOptions:
    """How a network is trained, and what an attacker will know of its start."""

    loss: Annotated[str, typer.Option(help="square, logistic (labels -1 and +1) or cross-entropy.")] = "square"
    outputs: Annotated[int | None, typer.Option(help="k; default: by the classes (two classes: one output).")] = None
    freeze: Annotated[bool, typer.Option("--freeze", help="Train the head alone (a linear probe).")] = False
    method: Annotated[
        str, typer.Option(help="gd (full batch), sgd (mini-batches), adam, or closed-form (--freeze, square loss).")
    ] = "gd"
    momentum: Annotated[float, typer.Option(help="Of gd and sgd.")] = 0.0
    weight_decay: Annotated[float, typer.Option(help="lambda of (lambda / 2) ||weights||^2.")] = 0.0
    batch_size: Annotated[int | None, typer.Option(help="Of sgd and adam; default: half the samples, or all.")] = None
    step_size: Annotated[float | None, typer.Option(help="Default: 1 / the largest curvature; adam: 1e-3.")] = None
    until: Annotated[float | None, typer.Option(help="The loss to reach; default: 1e-9 square, else 1e-3.")] = None
    steps: Annotated[int, typer.Option(help="At most so many steps.")] = 100_000
    growing: Annotated[
        bool, typer.Option("--growing", help="gd: lengthen the step as the curvature falls, towards large margins.")
    ] = False
    zero_head: Annotated[bool, typer.Option("--zero-head", help="Start the head at zero.")] = False
    initial: Annotated[
        str, typer.Option(help="What an attacker knows of the initial head: known, seed, distribution or zero.")
    ] = "known"
    features_at: Annotated[
        str, typer.Option(help="trained, or midpoint: halfway to the initial layers, which are then known.")
    ] = "trained"

    def fields(self, seed: int, privacy: "Privacy | None" = None) -> dict[str, Any]:
        """The fields that all networks share, checked."""
        from exhume_papers.victims.network_config import network_fields

        return network_fields(self, seed, privacy)


@dataclass(frozen=True)
class PrivacyOptions:
    """Training with differential privacy, if an epsilon or the noise is given."""

    epsilon: Annotated[
        float | None, typer.Option(help="Train by DP-SGD, with as much noise as this epsilon takes.")
    ] = None
    noise_multiplier: Annotated[
        float | None, typer.Option(help="DP-SGD with this noise, in units of --clip, instead of --epsilon.")
    ] = None
    clip: Annotated[
        float | None,
        typer.Option(help="DP-SGD: norm that each sample's gradient is cut to; default: the median at the start."),
    ] = None
    delta: Annotated[float | None, typer.Option(help="DP-SGD: the delta of (epsilon, delta); default 1e-5.")] = None
    private_steps: Annotated[int | None, typer.Option(help="DP-SGD: its number of steps; default 200.")] = None

    def fields(self) -> "Privacy | None":
        """None where no privacy is asked for."""
        from exhume_papers.victims.privacy import Privacy

        return Privacy.asked(**asdict(self))
