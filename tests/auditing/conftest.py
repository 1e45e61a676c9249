"""A head that was fitted on known features: small, and recovered in a second."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor


@dataclass(frozen=True)
class Fitted:
    """θ is the min-norm fit of labels −1 and +1 on relu features; `control` is as many rows again."""

    rows: Tensor
    weights: Tensor
    truth: Tensor
    control: Tensor
    labels: Tensor


@pytest.fixture(scope="session")
def fitted() -> Fitted:
    stream = torch.Generator().manual_seed(0)
    d, n, p = 16, 3, 300
    data = torch.randn(2 * n, d, generator=stream)
    data *= d**0.5 / data.norm(dim=1, keepdim=True)
    rows = torch.randn(p, d, generator=stream) / d**0.5
    labels = torch.tensor([-1.0, 1.0, 1.0])
    features = (data[:n] @ rows.T).clamp_min(0).double()
    weights = torch.linalg.pinv(features) @ labels.double()
    return Fitted(rows, weights.float(), data[:n], data[n:], labels)
