"""The dense layers of an observation that the silent-units attack can use."""

from dataclasses import replace

import torch

from exhume.attacks.silent.span import BATCH_NUMBERS
from exhume.errors import UsageError
from exhume.features.mixed_rows import MixedRows
from exhume.features.network import built_network
from exhume.features.rows import Rows, blocks
from exhume.layer_states import FAINT, LayerStates, changed
from exhume.observation import Observation
from exhume.observing.dense_layers import dense_layers

MOST_NUMBERS = 50_000_000  # of one state of a layer that is made from its rows; four of that size are held in float64


def layers_of(observation: Observation) -> tuple[LayerStates, ...]:
    """Those that were observed, or the first layer of features φ(Vx) where its start is known."""
    if observation.layers:
        return observation.layers
    initial = observation.initial_rows
    if initial is None:
        return ()
    features = observation.ridge
    if features.activation.leak > FAINT:
        return ()
    if features.bias is not None or features.p * features.d > MOST_NUMBERS:
        return ()  # the start of the bias is not part of such an observation
    shown = features.rows
    trained = MixedRows(shown, 2.0, initial, -1.0) if observation.knowledge.initial_body else shown
    layer = changed(_values(initial), _values(trained), bias=False, name="first layer", leak=features.activation.leak)
    return (layer,)


def with_layers(observation: Observation) -> Observation:
    """The same observation, with the dense layers of a network that can be built again at both ends of its training.

    Builds it by code that was allowed when its features were made.
    """
    source = observation.features.source
    if observation.layers or source is None or source.initial_state is None:
        return observation
    trained, _ = built_network(source, source.state, "the weights")
    started, _ = built_network(source, source.initial_state, "the initial weights")
    return replace(observation, layers=dense_layers(trained, started, source.input_shape))


def require_layers(observation: Observation) -> tuple[LayerStates, ...]:
    found = layers_of(observation)
    if not found:
        raise UsageError(
            "expected two states of a dense layer with ReLU that reads the inputs, found none in this observation; "
            "give the weights before training (--initial, or exhume train ... --knows-first-layer), or a checkpoint "
            "with the optimiser's state or a moving average"
        )
    return found


def _values(rows: Rows) -> torch.Tensor:
    return torch.cat([rows.block(part.start, part.stop) for part in blocks(rows, rows.block_rows)])


def silent_bytes(observation: Observation) -> int:
    """What the attack takes at least: five copies of the layer in float64 and a batch of Gram matrices."""
    found = layers_of(observation)
    return 0 if not found else 5 * 8 * found[0].target.numel() + 8 * BATCH_NUMBERS
