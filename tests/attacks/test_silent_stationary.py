"""Weights that L2 in the loss has made stationary: the layer itself is an average of gradients, whatever the optimiser.

W̃ = -(1/λ) Σ_i g_i x̃_iᵀ at the final weights, so it lies in the span of the data, and units that are silent at the end
have no part of a sample. Such networks condense: with three classes their rows are nearly three directions, so single
samples are gone. No sample comes back of either victim here; what is held fast is the equation, and that nothing false
is called recovered.
"""

import math

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.layer_states import averaged
from exhume.metrics.errors import relative_errors
from exhume.networks.head import with_bias
from silent_victims import rows

STEPS = 6000


def stationary(n: int, classes: int) -> tuple[Tensor, Tensor]:
    """The layer (400 × 31) and the data (n × 30), after torch's Adam with its weight decay and a falling step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(30, 400), nn.ReLU(), nn.Linear(400, classes))
    inputs, labels = rows(n, 30, 0), torch.arange(n) % classes
    made = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-3)
    falling = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 0.5 * (1 + math.cos(math.pi * step / STEPS)))
    for _ in range(STEPS):
        made.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        made.step()
        falling.step()
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    return with_bias(layer.weight, layer.bias), inputs


@pytest.mark.parametrize(("classes", "directions"), [(3, 3), (8, 8)])
def test_stationary_weights_are_in_the_span_of_the_data_and_condense(classes: int, directions: int) -> None:
    layer, inputs = stationary(8, classes)
    weights, extended = layer.double(), torch.cat([inputs, torch.ones(8, 1)], dim=1).double()
    coefficients = weights @ torch.linalg.pinv(extended)
    assert float((weights - coefficients @ extended).norm() / weights.norm()) < 2e-3
    values = torch.linalg.svdvals(weights)
    assert int((values > 0.1 * values[0]).sum()) == directions
    before = weights @ extended.T
    silent = before < -0.5 * before.abs().median()
    assert float(coefficients[silent].abs().median()) < 0.01 * float(coefficients.square().mean().sqrt())

    found = exhume.reconstruct(exhume.observe_layer(averaged(layer, layer, bias=True, source="stationary")))
    assert found.facts["target"] == "stationary"
    called = [value >= 0.5 for value in found.certificate.confidence]
    right = relative_errors(found.inputs[called].double(), inputs.double()) if any(called) else torch.zeros(0)
    assert bool((right < 0.1).all())
