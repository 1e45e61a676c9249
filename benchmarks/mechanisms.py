"""The mechanisms of the single-layer engine, each with a neutral form that takes its place.

The engine has no switches. A mechanism is a function or a number of it, or a hyperparameter, and is switched off from
outside: for the length of a run its name stands for something that does nothing, or the simplest thing instead.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch

from exhume.attacks.single_layer import polishing, removal, search_context, selection, split_newton, split_step
from exhume.attacks.single_layer.polishing import Polishing
from exhume.attacks.single_layer.removal import Removal
from exhume.attacks.single_layer.search_context import SearchContext
from exhume.attacks.single_layer.selection import Selection

Search = split_newton._SplitSearch


@dataclass(frozen=True)
class Mechanism:
    """`neutral`: owner, name, and what stands there instead. `dense`: where it matters; None: in both regimes.

    `reader`: the function (owner, name) that has to be called for the mechanism to matter; None: it always may.
    """

    neutral: tuple[tuple[Any, str, Any], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    dense: bool | None = None
    reader: tuple[Any, str] | None = None

    def matters_where(self, dense: bool) -> bool:
        return self.dense in (None, dense)

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, instead in self.neutral:
                stack.enter_context(patch.object(owner, name, instead))
            yield


@contextmanager
def noted() -> Iterator[set[str]]:
    """The names of the mechanisms that matter to a run in which nothing is switched off."""
    called: set[tuple[int, str]] = set()
    found = {name for name, one in MECHANISMS.items() if one.reader is None}
    with ExitStack() as stack:
        for owner, name in {one.reader for one in MECHANISMS.values() if one.reader is not None}:
            stack.enter_context(patch.object(owner, name, _noting(getattr(owner, name), (id(owner), name), called)))
        yield found
    for name, one in MECHANISMS.items():
        if one.reader is not None and (id(one.reader[0]), one.reader[1]) in called:
            found.add(name)


def _noting(function: Callable[..., Any], mark: tuple[int, str], called: set[tuple[int, str]]) -> Callable[..., Any]:
    def noting(*arguments: Any, **named: Any) -> Any:
        called.add(mark)
        return function(*arguments, **named)

    return noting


def as_it_is(_: Any, fit: Any, *rest: Any) -> Any:
    """A phase that hands back what it was given."""
    return fit
    yield


def kept(_: Any, growth: Any, fit: Any) -> Any:
    return fit


def no(*_: Any) -> bool:
    return False


def nothing(*_: Any) -> None:
    return None


def unsigned(loss: Any, candidates: Any) -> Any:
    return candidates


def nobody_alike(candidates: Any, *_: Any) -> Any:
    return torch.ones(len(candidates), dtype=torch.bool, device=candidates.device)


def random_proposals(bench: SearchContext, fit: Any, cap: int, generator: torch.Generator) -> Any:
    return bench.random_start(len(PROPOSE(bench, fit, cap, generator)), generator)


def random_filling(chosen: Selection, fit: Any, room: int, generator: torch.Generator) -> Any:
    return chosen.bench.random_start(room, generator)


def without_affine(bench: SearchContext, m: int, rows_a_number: float, affine: bool = False) -> Any:
    return ROWS_FOR(bench, m, rows_a_number)


def narrow(bench: SearchContext, share: float) -> int:
    return CAPACITY(bench, min(share, 0.75))


def never_late(polish: Polishing, candidates: Any) -> Any:
    fit, _ = yield from POLISH(polish, candidates)
    return fit, False


def only_metric(loss: Any, model: Any, damping: float, inverse: Any, basis: Any) -> Any:
    return inverse @ (model.descent @ basis)


def all_needed(_: Removal, fit: Any, at_least: float = 0.0) -> Any:
    return fit.candidates


PROPOSE, ROWS_FOR, CAPACITY = SearchContext.propose, SearchContext.rows_for, SearchContext.capacity
POLISH: Callable[..., Any] = Polishing.run


def off(
    owner: Any, name: str, instead: Any, dense: bool | None = None, reader: tuple[Any, str] | None = None
) -> Mechanism:
    """A function is its own reader."""
    itself = (owner, name) if callable(instead) and reader is None else reader
    return Mechanism(((owner, name, instead),), dense=dense, reader=itself)


def hyper(dense: bool | None = None, **settings: Any) -> Mechanism:
    return Mechanism(settings=settings, dense=dense)


SELECTING = (Selection, "run")


MECHANISMS = {
    "growth (all candidates at once)": hyper(growth=1e9, dense=True),
    "free affine part": off(SearchContext, "rows_for", without_affine, True),
    "proposals from moments": off(SearchContext, "propose", random_proposals, True),
    "more rows for moments": hyper(growing_rows_a_number=5.0, dense=True),
    "selection and regrowth": hyper(rounds=0),
    "selection (regrowth instead)": off(Search, "_selectable", no, True),
    "selection as soon as nothing stands out": off(Search, "_nothing_stands_out", no, True),
    "selection: cleaning": off(selection, "CLEANING", 0, True, SELECTING),
    "selection: growing": off(Selection, "_grow", as_it_is, True),
    "selection: promising ones": off(selection, "PROMISING", 0.0, True, SELECTING),
    "selection: eigenvectors to fill up": off(Selection, "_fill", random_filling, True),
    "selection: random rows to fill up": off(selection, "RANDOM", 0.0, True, SELECTING),
    "selection: too many eigenvectors are blends": off(selection, "FEW", 1e9, True, SELECTING),
    "selection: more candidates than growth ended with": off(split_newton, "MORE_AT_FIRST", 1.0, True, SELECTING),
    "room beyond 3/4 of the equations": off(SearchContext, "capacity", narrow, True),
    "cross-validation (the loss instead)": off(search_context, "cross_validated", lambda loss, fit: fit.loss, True),
    "second attempt": hyper(attempts=1),
    "merging copies and satellites": off(removal, "without_copies", nobody_alike),
    "satellites": off(removal, "SATELLITE_COSINE", removal.COPY_COSINE, reader=(Removal, "run")),
    "removal of all cheap ones at once": off(Removal, "_remove_cheap", as_it_is),
    "removal one by one": off(Removal, "_remove_needless", as_it_is),
    "signs": Mechanism(((polishing, "repair_signs", unsigned), (split_newton, "repair_signs", unsigned))),
    "opposites": off(polishing, "with_opposites", nothing),
    "pruning once more": off(Polishing, "run", never_late),
    "ghosts on the way": off(Search, "_trim", kept, False),
    "ghosts at the end": off(Removal, "needed", all_needed, False),
    "turning on the way": off(Search, "_turn_least", lambda self, growth, fit: as_it_is(self, fit), False),
    "turning at the end": off(Polishing, "_turn_wrong", lambda self, loss, fit: as_it_is(self, fit), False),
    "stages repeated while they pay": hyper(pays=1e300, dense=False),
    "momentum": off(split_step, "momentum", lambda loss, q: 0.0, False),
    "momentum far away": off(split_step, "FAR_MOMENTUM", 0.0, False, (split_step, "momentum")),
    "solve inside the span": off(split_step, "_solve_inside", only_metric, False),
}
