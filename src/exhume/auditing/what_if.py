"""What if the weights were published in another way: each defence is applied, to be attacked again.

int8, prune50, noise0.1, ...   as in `exhume train --defence`; "noise" alone is noise0.1
dp, dp3                        the head trained again with DP-SGD, to ε = 8 or 3; needs the records and their labels

What changes published weights changes them in every layer that is known to have been trained, not in the head alone. An
optimiser's state and a moving average are no weights: where they are published too, they stay as they are.
"""

import re
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume import seeds
from exhume.auditing.pruned_layers import BESIDE, pruned_layers
from exhume.auditing.target import AuditTarget
from exhume.defences.kinds import KINDS, elsewhere, parse_defences, publish
from exhume.defences.private import PrivateRecipe, epsilon, train_private_head
from exhume.errors import UsageError
from exhume.experiments.truth import Truth
from exhume.layer_states import LayerStates
from exhume.observation import Observation

DEFAULT_NOISE = "noise0.1"
DEFAULT_EPSILON = 8.0
PRIVATE_STEPS = 100
MOST_FEATURES = 200_000_000
OFFERED = {name: what for kind in KINDS for name, what in kind.offered.items()} | {
    "dp": "Train the head again with differential privacy (needs records with labels)"
}
"""What a page may offer, each with what it does."""


@dataclass(frozen=True, eq=False, repr=False)
class Defended:
    """The weights as they would be published: the target with what an attacker sees, and the head for the outputs."""

    name: str
    target: AuditTarget
    head: Float[Tensor, "k p"]
    keeps_bias: bool = True
    note: str = ""

    @property
    def observation(self) -> Observation:
        return self.target.observation


def check_what_if(names: tuple[str, ...], has_labels: bool) -> None:
    """Refuses names that mean nothing before hours are spent."""
    for name in names:
        if _dp(name) is None:
            parse_defences(_full_name(name))
        elif not has_labels:
            raise UsageError(f"expected records with labels for {name}, which trains again, found none; give --truth")


def defend(name: str, target: AuditTarget, truth: Truth | None, seed: int) -> Defended:
    wanted = _dp(name)
    if wanted is not None:
        return _private(name, wanted, target, truth, seed)
    defences = parse_defences(_full_name(name), seed=seed)
    if target.remade is not None:
        stream = seeds.generator(seed, "other-noise")
        target = target.remade(lambda weights: elsewhere(weights, defences, stream))
    inputs = None if truth is None else truth.inputs
    seen = publish(target.observation, defences, inputs=inputs, initial=target.initial_head)
    chosen = seen.features.chosen
    kept = torch.arange(target.head.shape[1]) if chosen is None else chosen
    initial = None if target.initial_head is None else target.initial_head[:, kept]
    head = torch.zeros_like(target.head)
    head[:, kept] = seen.weights if initial is None else seen.weights + initial
    gone = target.head.shape[1] - len(kept)
    layers, notes = pruned_layers(seen.layers, defences, kept, target.head.shape[1], target.in_front)
    features = (f"{gone:,} of {target.head.shape[1]:,} features removed",) if gone else ()
    note = "; ".join((*features, *notes, *_as_they_are(layers)))
    seen = replace(seen, layers=layers)
    return Defended(_full_name(name), replace(target, observation=seen), head, note=note)


def _as_they_are(layers: tuple[LayerStates, ...]) -> tuple[str, ...]:
    """What lies beside the weights, which a defence of the weights does not touch."""
    beside = dict.fromkeys(BESIDE[states.source] for states in layers if states.source in BESIDE)
    return tuple(f"{what} as it is" for what in beside)


def _full_name(name: str) -> str:
    return DEFAULT_NOISE if name == "noise" else name


def _dp(name: str) -> float | None:
    """ε for dp and dp3, None for anything else."""
    found = re.fullmatch(r"dp(\d+(?:\.\d+)?)?", name)
    if found is None:
        return None
    return DEFAULT_EPSILON if found[1] is None else float(found[1])


def _private(name: str, wanted: float, target: AuditTarget, truth: Truth | None, seed: int) -> Defended:
    """The head on the published features, trained again from zero."""
    if truth is None:
        raise UsageError(f"expected records with labels for {name}, found none")
    outputs, p = target.head.shape
    numbers = len(truth.inputs) * p
    if numbers > MOST_FEATURES:
        raise UsageError(f"expected at most {MOST_FEATURES:,} features of records for {name}, found {numbers:,}")
    recipe = PrivateRecipe(clip=1.0, noise=_noise_for(wanted), steps=PRIVATE_STEPS, seed=seed)
    knowledge = replace(target.observation.knowledge, initial="zero", initial_body=False)
    trained = train_private_head(
        target.features,
        truth.inputs.to(target.head.dtype),
        _targets(truth, outputs).to(target.head.dtype),
        recipe,
        knowledge,
        target.observation.image_shape,
    )
    note = f"epsilon {trained.epsilon:.2g} at delta {trained.delta:g}; head trained again from zero"
    observation = replace(trained.observation, layers=target.observation.layers)
    names = dict.fromkeys(repr(states.name) for states in observation.layers)
    note = "; ".join((note, *(f"layer {layer} as it is" for layer in names)))
    seen = replace(target, observation=observation)
    return Defended(name, seen, observation.weights, keeps_bias=False, note=note)


def _noise_for(wanted: float) -> float:
    """The noise that gives ε in full-batch steps, by bisection: ε falls with it."""
    low, high = 0.1, 1000.0
    for _ in range(24):
        middle = (low * high) ** 0.5
        recipe = PrivateRecipe(clip=1.0, noise=middle, steps=PRIVATE_STEPS)
        low, high = (middle, high) if epsilon(recipe, 1.0) > wanted else (low, middle)
    return high


def _targets(truth: Truth, outputs: int) -> Float[Tensor, "n k"]:
    if outputs == 1:
        return truth.labels[:, None]
    return torch.nn.functional.one_hot(truth.class_index.clamp_min(0), outputs).float()


def published(target: AuditTarget) -> Defended:
    """The model as it is, for the first line of the table."""
    return Defended("as published", target, target.head)
