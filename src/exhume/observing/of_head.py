"""A linear head over known features: what an attacker sees of it, by what is known of its start."""

from jaxtyping import Float
from torch import Tensor

from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import Rows
from exhume.observation import Knowledge, Observation
from exhume.start_rule import StartRule


def observe_head(
    features: RidgeFeatures | ModuleFeatures,
    head: Float[Tensor, "k p"],
    knowledge: Knowledge,
    image_shape: tuple[int, int, int] | None = None,
    *,
    initial: Float[Tensor, "k p"] | None = None,
    scale: float = 1.0,
    start: StartRule | None = None,
    initial_rows: Rows | None = None,
) -> Observation:
    """The change W(T) − c W(0) where W(0) is known, and W(T) where it is known up to its seed, or by its distribution.

    `head` is W(T), with its bias as the weights of a last feature that is always 1. `initial` is W(0), None for zero.
    `scale` is c, what weight decay left of W(0). `start` says how W(0) was drawn; who knows its seed only gets that.
    """
    hidden = knowledge.initial in ("seed", "distribution")
    return Observation(
        features,
        head if hidden or initial is None else head - scale * initial,
        knowledge,
        image_shape,
        start if knowledge.initial == "seed" else None,
        head if knowledge.initial == "known" else None,
        initial_rows,
    )
