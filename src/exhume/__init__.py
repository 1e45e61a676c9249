"""exhume digs training data out of a trained model's weights.

    observation = exhume.observe(model, initial=state_before_training, head="fc")   # any nn.Module, or
    observation = exhume.observe_features(V, theta, "relu")                         # weights over features, or
    observation = exhume.observe_layer(exhume.changed(before, after, bias=True))    # one dense layer, or
    observation = exhume.load_observation("runs/a")                                 # a run folder
    found = exhume.reconstruct(observation)
    score = exhume.evaluate(found, X_true)
    exhume.audit(model, initial=state_before_training).save("report.html")

Names are loaded when they are first used, so that `import exhume` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exhume.version import VERSION as __version__

if TYPE_CHECKING:
    from exhume.api import evaluate, load_observation, rank, reconstruct
    from exhume.attacks.probes.ranking import Ranking
    from exhume.attacks.silent.whole_inputs import whole_inputs
    from exhume.auditing.audit import Audit
    from exhume.auditing.of_model import audit, audit_features
    from exhume.layer_states import LayerStates, averaged, changed
    from exhume.metrics.errors import Evaluation
    from exhume.observation import Knowledge, Observation
    from exhume.observing.of_features import observe_features
    from exhume.observing.of_layer import observe_layer
    from exhume.observing.of_module import observe
    from exhume.reconstruction import Outcome, Reconstruction
    from exhume.theory import Gauge, gauge
    from exhume.verdicts import Verdict

_HOMES = {
    "audit": "exhume.auditing.of_model",
    "audit_features": "exhume.auditing.of_model",
    "averaged": "exhume.layer_states",
    "changed": "exhume.layer_states",
    "evaluate": "exhume.api",
    "load_observation": "exhume.api",
    "observe": "exhume.observing.of_module",
    "observe_features": "exhume.observing.of_features",
    "observe_layer": "exhume.observing.of_layer",
    "rank": "exhume.api",
    "reconstruct": "exhume.api",
    "Audit": "exhume.auditing.audit",
    "Evaluation": "exhume.metrics.errors",
    "Gauge": "exhume.theory",
    "Knowledge": "exhume.observation",
    "LayerStates": "exhume.layer_states",
    "Observation": "exhume.observation",
    "Outcome": "exhume.reconstruction",
    "Ranking": "exhume.attacks.probes.ranking",
    "Reconstruction": "exhume.reconstruction",
    "Verdict": "exhume.verdicts",
    "gauge": "exhume.theory",
    "whole_inputs": "exhume.attacks.silent.whole_inputs",
}

__all__ = [
    "Audit",
    "Evaluation",
    "Gauge",
    "Knowledge",
    "LayerStates",
    "Observation",
    "Outcome",
    "Ranking",
    "Reconstruction",
    "Verdict",
    "__version__",
    "audit",
    "audit_features",
    "averaged",
    "changed",
    "evaluate",
    "gauge",
    "load_observation",
    "observe",
    "observe_features",
    "observe_layer",
    "rank",
    "reconstruct",
    "whole_inputs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'exhume' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
