"""The dense layers of an observation that the silent-units attack can use."""

from exhume.attacks.silent.span import BATCH_NUMBERS
from exhume.errors import UsageError
from exhume.layer_states import LayerStates
from exhume.observation import Observation
from exhume.observing.dense_layers import layers_of


def require_layers(observation: Observation) -> tuple[LayerStates, ...]:
    found = layers_of(observation)
    if not found:
        raise UsageError(
            "expected two states of a dense layer with ReLU that reads the inputs, found none in this observation; "
            "give the weights before training (--initial, or exhume train ... --knows-first-layer), or a checkpoint "
            "with the optimiser's state or a moving average"
        )
    return found


def silent_bytes(observation: Observation) -> int:
    """What the attack takes at least: five copies of the layer in float64 and a batch of Gram matrices."""
    found = layers_of(observation)
    return 0 if not found else 5 * 8 * found[0].target.numel() + 8 * BATCH_NUMBERS
