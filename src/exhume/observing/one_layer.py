"""An observation of somebody who has one dense layer at several moments, and nothing else of the model."""

import torch

from exhume.activations import activation
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.layer_states import LayerStates
from exhume.observation import Knowledge, Observation


def layer_observation(states: LayerStates, knowledge: Knowledge | None = None) -> Observation:
    """Only the silent-units attack reads it: there is no head, and its place is zeros."""
    published = states.ends[-1].float()
    rows, bias = (published[:, :-1], published[:, -1]) if states.bias else (published, None)
    features = RidgeFeatures(HeldRows(rows.contiguous()), activation("relu"), bias, trained=True)
    return Observation(
        features, torch.zeros(1, states.h), knowledge or Knowledge(initial="distribution"), layers=(states,)
    )
