"""Attacks as users ask for them: the keys of a sweep's attack are the options of `exhume attack`."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from exhume.attacks.certificate import HELD_OUT_FRACTION
from exhume.attacks.choice import choose_method
from exhume.attacks.loop import Limits
from exhume.attacks.problem import Method
from exhume.attacks.start import SEEDS
from exhume.attacks.subspace.attack import Source
from exhume.errors import UsageError
from exhume.experiments.attacking import AttackSettings
from exhume.units import parse_bytes, parse_duration
from exhume.values import parse_device, parse_dtype, parse_products, parse_samples


@dataclass(frozen=True)
class PreparedAttack:
    method: Method
    settings: AttackSettings


class AttackRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    method: str = "auto"
    subspace: Literal["first-layer", "moments"] | None = None
    samples: int | Literal["auto"] = "auto"
    step: float | None = None
    inactive_slope: float = 0.0
    iterations: int | None = None
    budget: str | float | None = None
    memory: str | int | None = None
    held_out: float = HELD_OUT_FRACTION
    device: str = "cpu"
    dtype: str = "float32"
    products: str | None = None
    exact: bool = False
    start_seeds: int = SEEDS

    def prepare(self, network: bool, seed: int, known: Source | None = None) -> PreparedAttack:
        """`network` and `known` tell of the victim what `choose_method` asks for."""
        if self.method == "informed":
            raise UsageError("expected a method that needs no known samples in a sweep, found 'informed'")
        method = choose_method(
            self.method,
            network=network,
            known=known,
            subspace=self.subspace,
            step_size=self.step,
            inactive_slope=self.inactive_slope,
            iterations=self.iterations,
            exact=self.exact,
        )
        limits = Limits(
            seconds=math.inf if self.budget is None else parse_duration(str(self.budget)),
            memory_bytes=None if self.memory is None else parse_bytes(str(self.memory)),
        )
        settings = AttackSettings(
            samples=parse_samples(str(self.samples)),
            seed=seed,
            limits=limits,
            held_out=self.held_out,
            dtype=parse_dtype(self.dtype),
            products=parse_products(self.products),
            device=parse_device(self.device),
            start_seeds=self.start_seeds,
        )
        return PreparedAttack(method, settings)

    def identity(self, network: bool, known: Source | None = None) -> dict[str, Any]:
        """What makes it another attack: its method by its own name, and every setting that is not the default."""
        chosen = self.prepare(network, 0, known)
        told = self.model_dump(mode="json", exclude_defaults=True)
        if self.budget is not None:
            told["budget"] = chosen.settings.limits.seconds
        if self.memory is not None:
            told["memory"] = chosen.settings.limits.memory_bytes
        return told | {"method": chosen.method.name}
