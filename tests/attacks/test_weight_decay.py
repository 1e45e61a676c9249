"""What weight decay left of the start, in a layer as a script trains it: c, the rank, and what passes for neither."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from exhume.attacks.foundation.spectrum import Spectrum, rounding, spectrum_of_change

RATE, DECAY, STEPS = 0.1, 0.01, 200
LEFT = (1 - RATE * DECAY) ** STEPS


def extended(layer: nn.Linear) -> Tensor:
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().double()


def shown(d: int = 64, h: int = 256, n: int = 20, *, kind: str = "sgd", dark: int = 0, half: bool = False) -> Spectrum:
    """Of [W, b] after training on n rows, of which the first `dark` columns are always zero."""
    torch.manual_seed(0)
    inputs, labels = torch.rand(n, d), torch.arange(n) % 10
    inputs[:, :dark] = 0
    first = nn.Linear(d, h)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(h, 10))
    optimiser: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=RATE, weight_decay=DECAY)
    if kind == "adam":
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    if kind == "adamw":
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1.0)
    before = extended(first)
    for _ in range(STEPS):
        chosen = torch.randperm(n)[: n // 2]
        optimiser.zero_grad()
        cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        optimiser.step()
    after = first.half() if half else first
    return spectrum_of_change(extended(after), before, rounding(after.weight.detach()))


@pytest.mark.parametrize(
    ("d", "h", "n"),
    [
        (64, 256, 20),
        (64, 256, 60),  # the samples fill most of the space: five copies of the eigenvalue are left
        (300, 40, 10),  # wider than high
        (600, 540, 30),  # more columns than eigenvalues are taken of
    ],
)
def test_a_fifth_of_the_start_that_decayed_is_found(d: int, h: int, n: int) -> None:
    found = shown(d, h, n)
    assert found.exact
    assert found.rank == n
    assert found.scale == pytest.approx(LEFT, abs=1e-6)


def test_columns_that_are_always_zero_are_no_part_of_the_span() -> None:
    found = shown(dark=10)
    assert (found.rank, found.exact) == (20, True)
    assert float(found.directions[:10].abs().max()) < 1e-4


def test_a_file_in_half_precision_shows_it_too() -> None:
    found = shown(half=True)
    assert (found.rank, found.exact) == (20, True)
    assert found.scale == pytest.approx(LEFT, abs=1e-4)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("dark", [0, 10])
def test_optimisers_that_leave_no_rank_get_none(kind: str, dark: int) -> None:
    """Columns that nothing taught shrink alike under AdamW, which must not pass for the complement of a span."""
    assert not shown(kind=kind, dark=dark).exact


def test_more_samples_than_dimensions_leave_no_rank() -> None:
    assert not shown(d=64, n=80).exact


def test_a_rank_is_spoken_of_only_where_no_other_spectrum_has_its_gap() -> None:
    """40 samples of 30 numbers: their change has a fall by 3 somewhere, as any spectrum has."""
    stream = torch.Generator().manual_seed(0)
    parts = [torch.linalg.qr(torch.randn(side, 31, generator=stream, dtype=torch.float64))[0] for side in (400, 31)]
    values = torch.cat([torch.linspace(9, 3, 29), torch.ones(2)])
    weak = spectrum_of_change(parts[0] * values @ parts[1].T, torch.zeros(400, 31, dtype=torch.float64), 2e-4)
    assert (weak.rank, weak.clear, weak.sure) == (29, True, False)
    assert "rank 29" not in weak.describe()
    assert "no rank that stands out (a gap of 3)" in weak.describe()
    assert "rank 20" in shown().describe()
