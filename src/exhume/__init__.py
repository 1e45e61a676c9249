"""exhume digs training data out of a trained model's weights.

    observation = exhume.load_observation("runs/a")   # or exhume.observe_features(V, theta, "relu")
    found = exhume.reconstruct(observation)
    score = exhume.evaluate(found, X_true)

Names are loaded when they are first used, so that `import exhume` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exhume.version import VERSION as __version__

if TYPE_CHECKING:
    from exhume.api import evaluate, load_observation, observe_features, reconstruct
    from exhume.metrics.errors import Evaluation
    from exhume.observation import Knowledge, Observation
    from exhume.reconstruction import Outcome, Reconstruction
    from exhume.theory import Gauge, gauge

_HOMES = {
    "evaluate": "exhume.api",
    "load_observation": "exhume.api",
    "observe_features": "exhume.api",
    "reconstruct": "exhume.api",
    "Evaluation": "exhume.metrics.errors",
    "Gauge": "exhume.theory",
    "Knowledge": "exhume.observation",
    "Observation": "exhume.observation",
    "Outcome": "exhume.reconstruction",
    "Reconstruction": "exhume.reconstruction",
    "gauge": "exhume.theory",
}

__all__ = [
    "Evaluation",
    "Gauge",
    "Knowledge",
    "Observation",
    "Outcome",
    "Reconstruction",
    "__version__",
    "evaluate",
    "gauge",
    "load_observation",
    "observe_features",
    "reconstruct",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'exhume' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
