import torch
from torch import nn

from exhume_papers.networks.initialisation import draw_normal


def test_every_precision_starts_from_the_same_numbers() -> None:
    single, double = nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(5, dtype=torch.float64))
    for parameter in (single, double):
        draw_normal(parameter, 0.5, torch.Generator().manual_seed(3))
    assert torch.equal(single.double(), double)
    assert bool(single.any())
