"""The second act of the demo: faces out of an ordinary PyTorch network, through its first layer alone.

Default layers with bias, labels at random, mini-batches, momentum, cross-entropy: nothing is arranged for the attack.
It sees the first layer before and after training, and neither the faces nor their number.
"""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.attacks.running.loop import run_attack
from exhume.attacks.silent.attack import SilentUnits
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.layer_states import changed
from exhume.metrics.errors import relative_errors
from exhume.metrics.matching import match
from exhume.networks.head import with_bias
from exhume.observing.of_layer import observe_layer
from exhume.reconstruction import Reconstruction

SAMPLES, UNITS, CLASSES = 50, 2000, 2
STEPS, BATCH, RATE, MOMENTUM = 400, 10, 0.01, 0.9


@dataclass(frozen=True, eq=False, repr=False)
class Dug:
    """Pictures of the faces and of what came back, in the same order, and errors over each face's norm.

    `before` and `after` are the states of the network, as one would publish them.
    """

    before: dict[str, Tensor]
    after: dict[str, Tensor]
    found: Reconstruction
    truth: Float[Tensor, "n c h w"]
    recovered: Float[Tensor, "n c h w"]
    errors: Float[Tensor, " n"]


def dig_faces(seed: int = 0) -> Dug:
    """Trains a network of 625-2000-2 on 50 faces, forgets them, and digs them out again."""
    data = load(DataConfig(name="faces", samples=SAMPLES, norm="keep", seed=seed))
    before, after = train_faces(data.inputs.float(), seed)
    states = changed(first_layer(before), first_layer(after), bias=True, name="0")
    found = run_attack(observe_layer(states), SilentUnits(), seed=seed).reconstruction
    inputs, candidates = data.inputs.float(), found.candidates.float()
    order = match(inputs, candidates, sign_free=False).candidate
    shown = torch.where((order >= 0)[:, None], candidates[order.clamp_min(0)], inputs.mean(dim=0))
    pixels = [data.preparation.to_pixels(rows, data.preparation.scale) for rows in (inputs, shown)]
    errors = relative_errors(inputs.double(), candidates.double())
    return Dug(before, after, found, pixels[0], pixels[1], errors)


def first_layer(state: dict[str, Tensor]) -> Float[Tensor, "h c"]:
    return with_bias(state["0.weight"], state["0.bias"])


def train_faces(inputs: Float[Tensor, "n d"], seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(inputs.shape[1], UNITS), nn.ReLU(), nn.Linear(UNITS, CLASSES))
        before = copy.deepcopy(model.state_dict())
        labels = torch.randint(CLASSES, (len(inputs),))
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        for _ in range(STEPS):
            chosen = torch.randperm(len(inputs))[:BATCH]
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
            optimiser.step()
    return before, model.state_dict()
