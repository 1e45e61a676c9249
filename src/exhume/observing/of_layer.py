"""An observation of somebody who has one dense layer at several moments, and nothing else of the model."""

import torch

from exhume.activations import activation
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.layer_states import LayerStates
from exhume.observation import Knowledge, Observation


def observe_layer(states: LayerStates, knowledge: Knowledge | None = None) -> Observation:
    """What an attacker sees who has one dense layer at two moments, or an average of its gradients, and nothing else.

    `exhume.changed` and `exhume.averaged` make the states. Only the silent-units attack reads such an observation:
    there is no head, and its place is zeros.
    """
    published = states.ends[-1].float()
    rows, bias = (published[:, :-1], published[:, -1]) if states.bias else (published, None)
    features = RidgeFeatures(HeldRows(rows.contiguous()), activation("relu"), bias, trained=True)
    return Observation(
        features, torch.zeros(1, states.h), knowledge or Knowledge(initial="distribution"), layers=(states,)
    )
