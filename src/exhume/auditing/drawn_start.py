"""Weights before training that are drawn again from their seed, and the search of that seed."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from exhume.attacks.silent.seed_search import default_rows, place_in_stream, try_seeds
from exhume.errors import ExhumeError

ENOUGH_ROWS = 64  # of a layer whose change tells the right start by its rank
MOST_SKIPPED = 20_000_000  # numbers that may be drawn before those of a layer: above, the factory is as quick


def drawn(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """What the factory builds after torch.manual_seed(seed). The caller's own random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()


def found_seed(
    build: Callable[[int], nn.Module],
    published: Mapping[str, Tensor],
    seeds: int,
    watch: Callable[[int], None] = lambda seed: None,
) -> int | None:
    """The seed below `seeds` from which a start of these weights is drawn; None where there is none."""
    model = build(0)
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    # the change of a head of few outputs is not low in rank, and a head may be listed first
    largest = max(linear, key=lambda name: linear[name].weight.numel(), default=None)
    name = next((name for name, layer in linear.items() if layer.out_features >= ENOUGH_ROWS), largest)
    layer = None if name is None else linear[name]
    key = f"{name}.weight" if name else "weight"
    if layer is None or key not in published or published[key].shape != layer.weight.shape:
        raise ExhumeError(f"expected a linear layer of the model in the weights, found no {key!r} of its shape")

    def by_factory(seed: int, rows: int) -> Tensor:
        return build(seed).state_dict()[key][:rows]

    before = min(sum(parameter.numel() for parameter in model.parameters()), MOST_SKIPPED)
    place = place_in_stream(layer, 0, before)
    draw = by_factory if place is None else default_rows(layer, place)
    for tried in try_seeds(published[key].to(layer.weight.dtype), draw, seeds):
        watch(tried.seed)
        if tried.fits:
            return tried.seed
    return None


def note_on_seed(seed: int | None, tried: int) -> str:
    if seed is None:
        return f"None of the seeds below {tried:,} draws a start of these weights."
    return f"Your seed is {seed}: anybody can find it, and draw the weights before training from it."
