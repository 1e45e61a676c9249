"""How many candidates of a network are recorded at a time, within a budget of memory."""

import math

import pytest
import torch
from torch import nn

from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.foundation.ranks import ALONE
from exhume.attacks.foundation.state import Step
from exhume.attacks.modules.memory_plan import NetworkSizes, network_room, recorded_bytes
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.running.prepare import require_room
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures, penultimate_features
from exhume.observation import Knowledge, Observation

SIDE, CHANNELS = 16, 8


def features() -> ModuleFeatures:
    torch.manual_seed(0)
    body = (nn.Conv2d(3, CHANNELS, 3, padding=1), nn.GELU(), nn.AvgPool2d(4), nn.Flatten())
    model = nn.Sequential(*body, nn.Linear(CHANNELS * 16, 2, bias=False))
    return penultimate_features(model, "4", (3, SIDE, SIDE))


def observed(samples: int | None = None) -> Observation:
    seen = features()
    data = torch.randn(3, seen.d, generator=torch.Generator().manual_seed(1))
    return Observation(seen, torch.ones(2, 3) @ seen(data), Knowledge(samples), (3, SIDE, SIDE))


def test_the_record_of_a_row_has_at_least_its_maps_and_not_the_weights() -> None:
    found = recorded_bytes(features(), torch.float32)
    maps = 4 * CHANNELS * SIDE**2
    assert maps <= found <= 4 * maps


@pytest.mark.parametrize("told", [None, 40])
def test_more_memory_means_larger_chunks_and_never_more_than_was_asked_for(told: int | None) -> None:
    sizes = NetworkSizes(768, 20_000, 2, 4, told, 10**6, 30 * 10**6)
    rooms = [network_room(sizes, sizes.least_bytes + spare, 64) for spare in (0, 10**9, 10**10, 10**12)]
    chunks = [room.chunk for room in rooms]
    assert chunks[0] == 1
    assert chunks == sorted(chunks)
    assert 1 < chunks[1] < 64
    assert chunks[-1] == 64
    for room, spare in zip(rooms, (0, 10**9, 10**10, 10**12), strict=True):
        needed = sizes.fixed_bytes + sizes.candidates * sizes.candidate_bytes + room.chunk * sizes.record_bytes
        assert needed <= sizes.least_bytes + spare
        assert room.candidates >= sizes.candidates


def test_a_budget_that_is_too_small_is_refused_with_the_number_that_would_do() -> None:
    observation, method = observed(), ModuleNewton()
    least = math.ceil(NetworkSizes.of(observation, torch.float32).least_bytes / 2**20)
    with pytest.raises(UsageError, match=f"give --memory {least}M"):
        require_room(observation, method, (least - 1) * 2**20, torch.float32, ALONE)
    require_room(observation, method, least * 2**20, torch.float32, ALONE)


def test_the_chunk_changes_nothing_but_the_memory() -> None:
    least = NetworkSizes.of(observed(3), torch.float32).least_bytes

    def last(memory: int | None) -> Step:
        method = ModuleNewton(iterations=12)
        resources = Resources(memory, torch.float32, torch.float32, torch.device("cpu"))
        return list(method.steps(method.open_case(observed(3), 0, 0.05, resources).problem))[-1]

    torch.testing.assert_close(last(least).candidates, last(None).candidates, rtol=1e-3, atol=1e-3)
