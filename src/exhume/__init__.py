"""exhume digs training data out of a trained model's weights.

    observation = exhume.observe(model, initial=state_before_training, head="fc")   # any nn.Module, or
    observation = exhume.observe_features(V, theta, "relu")                         # weights over features, or
    observation = exhume.observe_layer(exhume.changed(before, after, bias=True))    # one dense layer, or
    observation = exhume.load_observation("runs/a")                                 # a run folder
    found = exhume.reconstruct(observation)           # or method="heavy-ball", or method=exhume.SplitNewton(rounds=5)
    score = exhume.evaluate(found, X_true)
    exhume.audit(model, initial=state_before_training).save("report.html")
    exhume.scan("model.skops")                        # training data that lies in a file as it stands

Names are loaded when they are first used, so that `import exhume` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exhume.version import VERSION as __version__

if TYPE_CHECKING:
    from exhume.activations import Activation, register_activation
    from exhume.api import evaluate, load_observation, rank, reconstruct, scan
    from exhume.attacks.dense_spans.attack import DenseSpan
    from exhume.attacks.firing.attack import FiringPatterns
    from exhume.attacks.heavy_ball import HeavyBall
    from exhume.attacks.informed.attack import InformedAttack
    from exhume.attacks.modules.newton import ModuleNewton
    from exhume.attacks.prior.attack import ImagePrior
    from exhume.attacks.probes.ranking import Ranking
    from exhume.attacks.registry import register_attack
    from exhume.attacks.replay.attack import Replay
    from exhume.attacks.rewind.attack import Rewind
    from exhume.attacks.silent.attack import SilentUnits
    from exhume.attacks.silent.whole_inputs import whole_inputs
    from exhume.attacks.single_layer.split_newton import SplitNewton
    from exhume.attacks.subspace.attack import SubspaceAttack
    from exhume.attacks.tangent.newton import KktAttack, NtkAttack
    from exhume.auditing.audit import Audit
    from exhume.auditing.of_model import audit, audit_features
    from exhume.data.config import DataSource, register_data
    from exhume.layer_states import LayerStates, averaged, changed
    from exhume.metrics.errors import Evaluation
    from exhume.observation import Knowledge, Observation
    from exhume.observing.of_features import observe_features
    from exhume.observing.of_layer import observe_layer
    from exhume.observing.of_module import observe
    from exhume.recipe import Recipe
    from exhume.reconstruction import Outcome, Reconstruction
    from exhume.scanning.scan import Scan
    from exhume.theory import Gauge, gauge
    from exhume.verdicts import Verdict

_HOMES = {
    "Activation": "exhume.activations",
    "Audit": "exhume.auditing.audit",
    "DataSource": "exhume.data.config",
    "DenseSpan": "exhume.attacks.dense_spans.attack",
    "Evaluation": "exhume.metrics.errors",
    "FiringPatterns": "exhume.attacks.firing.attack",
    "Gauge": "exhume.theory",
    "HeavyBall": "exhume.attacks.heavy_ball",
    "ImagePrior": "exhume.attacks.prior.attack",
    "InformedAttack": "exhume.attacks.informed.attack",
    "KktAttack": "exhume.attacks.tangent.newton",
    "Knowledge": "exhume.observation",
    "LayerStates": "exhume.layer_states",
    "ModuleNewton": "exhume.attacks.modules.newton",
    "NtkAttack": "exhume.attacks.tangent.newton",
    "Observation": "exhume.observation",
    "Outcome": "exhume.reconstruction",
    "Ranking": "exhume.attacks.probes.ranking",
    "Recipe": "exhume.recipe",
    "Reconstruction": "exhume.reconstruction",
    "Replay": "exhume.attacks.replay.attack",
    "Rewind": "exhume.attacks.rewind.attack",
    "Scan": "exhume.scanning.scan",
    "SilentUnits": "exhume.attacks.silent.attack",
    "SplitNewton": "exhume.attacks.single_layer.split_newton",
    "SubspaceAttack": "exhume.attacks.subspace.attack",
    "Verdict": "exhume.verdicts",
    "audit": "exhume.auditing.of_model",
    "audit_features": "exhume.auditing.of_model",
    "averaged": "exhume.layer_states",
    "changed": "exhume.layer_states",
    "evaluate": "exhume.api",
    "gauge": "exhume.theory",
    "load_observation": "exhume.api",
    "observe": "exhume.observing.of_module",
    "observe_features": "exhume.observing.of_features",
    "observe_layer": "exhume.observing.of_layer",
    "rank": "exhume.api",
    "reconstruct": "exhume.api",
    "register_activation": "exhume.activations",
    "register_attack": "exhume.attacks.registry",
    "register_data": "exhume.data.config",
    "scan": "exhume.api",
    "whole_inputs": "exhume.attacks.silent.whole_inputs",
}

__all__ = [
    "Activation",
    "Audit",
    "DataSource",
    "DenseSpan",
    "Evaluation",
    "FiringPatterns",
    "Gauge",
    "HeavyBall",
    "ImagePrior",
    "InformedAttack",
    "KktAttack",
    "Knowledge",
    "LayerStates",
    "ModuleNewton",
    "NtkAttack",
    "Observation",
    "Outcome",
    "Ranking",
    "Recipe",
    "Reconstruction",
    "Replay",
    "Rewind",
    "Scan",
    "SilentUnits",
    "SplitNewton",
    "SubspaceAttack",
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
    "register_activation",
    "register_attack",
    "register_data",
    "scan",
    "whole_inputs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'exhume' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
