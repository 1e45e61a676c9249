"""An attack that an audit will make, and why."""

from dataclasses import dataclass, replace

from exhume.observation import Observation


@dataclass(frozen=True)
class PlannedAttack:
    """`samples` is what it knows of n, `layer` which of the observation's layers it is made on, if it is on one."""

    method: str
    why: str
    seed: int
    samples: int | None = None
    layer: int | None = None

    def seen(self, observation: Observation) -> Observation:
        """What this attack sees of an observation."""
        if self.layer is None or len(observation.layers) < 2:
            return observation
        return replace(observation, layers=(observation.layers[self.layer],))
