from typing import get_args

import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.seeds import Purpose, derive, generator

PURPOSES = get_args(Purpose)


def test_derived_seeds_never_change_because_saved_observations_depend_on_them() -> None:
    assert (derive(0, "features"), derive(0, "data"), derive(7, "bias")) == (
        2_812_359_030_893_245_881,
        4_438_772_297_414_449_236,
        8_419_175_658_928_495_355,
    )


@given(st.integers(-(2**70), 2**70), st.sampled_from(PURPOSES))
def test_a_derived_seed_is_one_that_torch_and_numpy_take(seed: int, purpose: Purpose) -> None:
    assert 0 <= derive(seed, purpose) < 2**63
    generator(seed, purpose)


def test_every_purpose_and_seed_has_a_stream_of_its_own() -> None:
    derived = {derive(seed, purpose) for seed in range(-500, 500) for purpose in PURPOSES}
    assert len(derived) == 1000 * len(PURPOSES)


def test_streams_of_neighbouring_seeds_and_other_purposes_are_uncorrelated() -> None:
    streams = [torch.randn(20_000, generator=generator(seed, name)) for seed in (0, 1) for name in ("data", "features")]
    correlation = torch.corrcoef(torch.stack(streams)) - torch.eye(4)
    assert correlation.abs().max() < 5 / 20_000**0.5


def test_a_generator_starts_afresh_each_time() -> None:
    first, again = (torch.randn(5, generator=generator(3, "start")) for _ in range(2))
    assert torch.equal(first, again)
