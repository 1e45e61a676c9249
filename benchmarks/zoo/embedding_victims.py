"""Heads on embeddings of sentences that a language model made: the inputs are the embeddings themselves."""

from pathlib import Path

import torch
from torch import nn

from zoo.data import TOPICS, texts
from zoo.loops import fit, state_of
from zoo.networks import mlp
from zoo.victim import Known, Trained, Victim


def linear_head(data: Path) -> Trained:
    records, control = texts(40)
    model = nn.Sequential(nn.Linear(384, TOPICS))
    before = state_of(model)
    loss = fit(model, records, torch.optim.SGD(model.parameters(), lr=1.0), epochs=300)
    return Trained(model, before, records, control, Known(before, recipe=("sgd",)), loss)


def perceptron_head(data: Path) -> Trained:
    records, control = texts(40)
    model = mlp(384, 1024, TOPICS)
    before, optimiser = state_of(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = fit(model, records, optimiser, epochs=100, batch=10)
    return Trained(model, before, records, control, Known(before, recipe=("momentum",)), loss)


VICTIMS = (
    Victim("texts-linear-head", "40 sentences as embeddings of 384, linear head, SGD", "the start", linear_head),
    Victim(
        "texts-mlp-head",
        "40 sentences as embeddings, 384-1024-4, momentum, batches of 10",
        "the start",
        perceptron_head,
    ),
)
