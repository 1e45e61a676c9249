"""How to attack: the method and its options, what the attacker knows, and what he may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from exhume.attacks.foundation.certificate import HELD_OUT_FRACTION
from exhume.attacks.foundation.hyperparameters import OptionValue
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Source
from exhume.attacks.foundation.ranks import ALONE, Ranks
from exhume.attacks.prior.spectrum import FrequencySpectrum
from exhume.attacks.registry import AUTO
from exhume.attacks.running.budget import Limits
from exhume.attacks.running.start import SEEDS
from exhume.errors import UsageError

PRIORS = ("none", "image")


@dataclass(frozen=True, eq=False)
class AttackSettings:
    """One attack, whichever door it came through: the command line, Python, an audit, a sweep, a comparison.

    `method` by its name or as an object; `options` are hyperparameters of one that is named. `subspace`: where that of
    the data comes from; "given" is that of the observation. `spectrum` and `resolution` belong to the prior on images.
    `pool`: attacks from so many seeds, of which what they agree on is kept.
    """

    method: str | AnyMethod = AUTO
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    subspace: Source | None = None
    prior: str = "none"
    spectrum: FrequencySpectrum | None = None
    resolution: int | None = None
    samples: int | None = None
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    held_out: float = HELD_OUT_FRACTION
    dtype: torch.dtype = torch.float32
    products: torch.dtype | None = None
    device: torch.device | str = "cpu"
    start_seeds: int = SEEDS
    """How many seeds are tried where the initial head is known up to its seed."""
    pool: int = 1
    ranks: Ranks = ALONE
    """The processes that share the attack; each of them makes it."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """The options that asked for all this, to be kept with what was found."""

    def __post_init__(self) -> None:
        if self.prior not in PRIORS:
            raise UsageError(f"expected a prior out of {', '.join(PRIORS)}, found {self.prior!r}")
        if self.pool > 1 and self.ranks.size > 1:
            raise UsageError(
                f"expected one process for a pool of attacks, found {self.ranks.size} ranks; start it without torchrun"
            )

    @property
    def asked(self) -> frozenset[str]:
        """What is asked of a method besides that it runs."""
        given = {
            "subspace": self.subspace is not None,
            "prior": self.prior != "none",
            "samples": self.samples is not None,
            "products": self.products is not None,
            "pool": self.pool > 1,
        }
        return frozenset(self.options) | {name for name, is_given in given.items() if is_given}
