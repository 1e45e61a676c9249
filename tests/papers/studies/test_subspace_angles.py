import pytest
import torch

from exhume_papers.studies.subspace_angles import MomentAngle, RoundedLayer, seen_with_noise


def test_the_angle_stays_below_the_bound_and_follows_the_noise() -> None:
    stream = torch.Generator().manual_seed(0)
    found: dict[float, list[float]] = {}
    for deviation in (1e-4, 1e-3, 1e-2):
        for _ in range(20):
            left = torch.randn(60, 4, generator=stream, dtype=torch.float64)
            right = torch.randn(4, 30, generator=stream, dtype=torch.float64)
            noise = deviation * torch.randn(60, 30, generator=stream, dtype=torch.float64)
            one = seen_with_noise(left @ right, noise, deviation, 4)
            assert one.angle < one.bound
            found.setdefault(deviation, []).append(one.angle)
    means = [sum(values) / len(values) for values in found.values()]
    assert means[1] / means[0] == pytest.approx(10, rel=0.4)
    assert means[2] / means[1] == pytest.approx(10, rel=0.4)


def test_the_bound_says_nothing_where_it_is_told_too_little_noise() -> None:
    """It can be refuted: with a deviation that is understated the angle is above it."""
    stream = torch.Generator().manual_seed(1)
    change = torch.randn(60, 4, generator=stream, dtype=torch.float64) @ torch.randn(
        4, 30, generator=stream, dtype=torch.float64
    )
    noise = 1e-2 * torch.randn(60, 30, generator=stream, dtype=torch.float64)
    one = seen_with_noise(change, noise, 1e-3, 4)
    assert one.angle > one.bound


def test_rounded_layers_keep_to_it() -> None:
    half, brain = (RoundedLayer(3, 20, 5, 60, dtype, 0).run() for dtype in (torch.float16, torch.bfloat16))
    assert half.angle < half.bound
    assert brain.angle < brain.bound
    assert 4 < brain.angle / half.angle < 16


def test_the_span_of_moments_comes_closer_with_p() -> None:
    few, many = (sum(MomentAngle(20, 2, width, seed).run() for seed in range(3)) for width in (1_000, 25_000))
    assert few / many == pytest.approx(5, rel=0.5)
