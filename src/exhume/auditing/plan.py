"""Which attacks apply to a target, from cheap to dear, and why the others do not."""

from dataclasses import dataclass

from exhume.attacks.choice import METHODS
from exhume.attacks.silent.layers import only_layer
from exhume.auditing.target import Target
from exhume.features.ridge import RidgeFeatures
from exhume.layer_states import FAINT, LayerStates
from exhume.observation import Observation
from exhume.observing.dense_layers import layers_of

_NEEDS = {
    "split-newton": "It is for features of the form phi(Vx + b).",
    "heavy-ball": "It is for features of the form phi(Vx + b).",
    "module-newton": "It is for networks whose features have another form.",
    "subspace": "It needs a first layer that moved in training from a known start.",
    "ntk": "It needs all layers of a two-layer network without bias, before and after training.",
    "kkt": "It needs a two-layer classifier that was trained far beyond fitting; run it with 'exhume attack'.",
    "informed": "It is for an attacker who has all training samples but a few.",
    "silent-units": (
        "It needs two states of a ReLU layer that reads the inputs, frozen features, or few large patches: the weights "
        "before training or an earlier checkpoint (--initial), or a checkpoint with the optimiser's state or a moving "
        "average."
    ),
}
_LINEAR = (
    "These features are linear: each output's weights are one combination of the samples, in which single ones cannot "
    "be told apart. 'exhume rank' tells which records a linear head was trained on."
)


@dataclass(frozen=True)
class Offer:
    """An attack to run. `samples` is what it is told of n, `layer` which of the observation's layers it is made on."""

    method: str
    why: str
    seed: int
    samples: int | None = None
    layer: int = 0

    def seen(self, observation: Observation) -> Observation:
        """What this attack sees of an observation."""
        return only_layer(observation.told(self.samples), self.layer)


@dataclass(frozen=True)
class PassedOver:
    method: str
    why: str


@dataclass(frozen=True)
class Plan:
    offers: tuple[Offer, ...]
    passed_over: tuple[PassedOver, ...]


def make_plan(target: Target, samples: int | None, seed: int) -> Plan:
    """`samples` is n where the owner knows it; an attack that finds n by itself is not told before it has failed."""
    observation = target.observation
    if not isinstance(observation.features, RidgeFeatures):
        offers = _for_networks(samples, seed)
    elif observation.features.activation.name == "linear":
        return Plan((), tuple(PassedOver(name, _LINEAR) for name in METHODS if name != "auto"))
    else:
        offers = _for_ridge(observation, samples, seed)
    offers = (*_for_layers(observation, seed), *offers)
    return Plan(offers, _others(offers, target.no_silence))


def _for_layers(observation: Observation, seed: int) -> tuple[Offer, ...]:
    """One attack per state of a layer, in the order in which they are known: the strong ones first."""
    return tuple(
        Offer("silent-units", f"{_capital(states.describe())}. {_told_apart(states)}", seed, layer=i)
        for i, states in enumerate(layers_of(observation))
    )


def _told_apart(states: LayerStates) -> str:
    if states.leak <= FAINT:
        return "Its silent units tell single ones apart."
    return "None of its units is silent, so only pictures can be told apart, by their edges."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _for_ridge(observation: Observation, samples: int | None, seed: int) -> tuple[Offer, ...]:
    moved = observation.initial_rows is not None
    offers = [Offer("split-newton", "Exact for phi(Vx + b), finds n by itself.", seed)]
    if moved:
        why = "The change of the first layer shows the span of the data, which leaves few unknowns."
        offers.insert(0, Offer("subspace", why, seed))
    else:
        offers.append(Offer("split-newton", "Another start, because the first one did not decide.", seed + 1))
    if moved and observation.ridge.bias is None and observation.published_head is not None:
        offers.append(Offer("ntk", "The change of all layers at once.", seed))
    if samples is not None:
        offers.append(Offer("heavy-ball", "The published attack, which has to be told n.", seed, samples))
    return tuple(offers)


def _for_networks(samples: int | None, seed: int) -> tuple[Offer, ...]:
    offers = [Offer("module-newton", "For the penultimate features of any network, finds n by itself.", seed)]
    if samples is not None:
        offers.append(Offer("module-newton", "The same, told n: it then tries several starts.", seed, samples))
    else:
        offers.append(Offer("module-newton", "Another start, because the first one did not decide.", seed + 1))
    return tuple(offers)


def _others(offers: tuple[Offer, ...], no_silence: str | None) -> tuple[PassedOver, ...]:
    """Methods that are not offered are listed with the reason: a reader must not take them for tried."""
    offered = {offer.method for offer in offers}
    needs = dict(_NEEDS)
    if no_silence is not None:
        needs["silent-units"] = (
            f"It needs a ReLU layer that reads the inputs, frozen features, or few large patches. Here, {no_silence}."
        )
    if "split-newton" in offered:
        needs["heavy-ball"] = "It has to be told n, which was not given (--samples)."
    return tuple(
        PassedOver(name, needs.get(name, "It is not part of an audit; run it with 'exhume attack'."))
        for name in METHODS
        if name != "auto" and name not in offered
    )
