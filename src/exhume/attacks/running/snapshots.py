"""A few candidates of an attack on its way: what a reader scrubs through later, and what held-out weights say of them.

Nobody knows beforehand how long an attack will run, so every s-th iteration is kept, and once there are twice as many
as wanted every other one is dropped and s doubles: at any time the kept ones are evenly spread and bounded in number.
Their memory is bounded too: large candidates are kept less often, and not at all where a few would be too many.

What is kept are candidates in the attack's own coordinates. When the attack is over, and nothing can be steered by it
any more, its case makes inputs of a dozen of them and says what each leaves unexplained of the held-out weights.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.foundation.state import Step
from exhume.errors import ExhumeError
from exhume.files import read_tensors, write_tensors

KIND = "snapshots"
SNAPSHOTS_FILE = "snapshots.safetensors"
WANTED = 12
FEWEST = 4
MOST_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Candidates at one iteration, as inputs in single precision: half of it would show as a floor of the errors."""

    iteration: int
    passes: float
    loss: float
    candidates: Float[Tensor, "m d"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Moment:
    """Candidates at one iteration, in the coordinates of the attack."""

    iteration: int
    passes: float
    loss: float
    places: Float[Tensor, "m c"] = field(repr=False)


@dataclass
class SnapshotKeeper:
    """Looks on. `stride` is the s above; `most` how many are kept in the end at most."""

    most: int = WANTED
    most_bytes: int = MOST_BYTES
    stride: int = 1
    kept: list[Moment] = field(default_factory=list)

    def note(self, step: Step, passes: float) -> None:
        places = step.candidates
        due = not self.kept or step.iteration >= self.kept[-1].iteration + self.stride
        if places.numel() == 0 or not due:
            return
        room = min(self.most, self.most_bytes // (2 * places.element_size() * places.numel()))
        if room < FEWEST:
            return
        self.kept.append(Moment(step.iteration, passes, step.loss, places.detach().to(device="cpu", copy=True)))
        while len(self.kept) >= 2 * room:
            self.stride *= 2
            self.kept = [moment for index, moment in enumerate(self.kept) if index % 2 == 0]

    def pages(self) -> dict[str, Tensor]:
        """All that a keeper needs to go on as if nothing had happened."""
        lines = [[moment.iteration, moment.passes, moment.loss] for moment in self.kept]
        pages = {f"places.{index}": moment.places for index, moment in enumerate(self.kept)}
        return {**pages, "lines": torch.tensor(lines, dtype=torch.float64), "stride": torch.tensor(self.stride)}

    def restore(self, pages: dict[str, Tensor]) -> None:
        """Goes on from the pages of another keeper; afresh from none, or from those of the first form, which do not
        have the coordinates of the attack."""
        if not any(name.startswith("places.") for name in pages):
            return
        self.stride = int(pages["stride"])
        self.kept = [
            Moment(int(iteration), passes, loss, pages[f"places.{index}"])
            for index, (iteration, passes, loss) in enumerate(pages["lines"].tolist())
        ]

    def moments(self) -> tuple[Moment, ...]:
        """At most `most`, evenly spread, the first and the last kept among them."""
        if len(self.kept) <= self.most:
            return tuple(self.kept)
        places = torch.linspace(0, len(self.kept) - 1, self.most).round().long().tolist()
        return tuple(self.kept[place] for place in places)


def save_snapshots(snapshots: tuple[Snapshot, ...], path: Path) -> None:
    tensors = {f"candidates.{index}": snapshot.candidates for index, snapshot in enumerate(snapshots)}
    lines = [[snapshot.iteration, snapshot.passes, snapshot.loss] for snapshot in snapshots]
    write_tensors(path, KIND, tensors, {"snapshots": lines})


def load_snapshots(path: Path) -> tuple[Snapshot, ...]:
    """The snapshots of a run; none where the file is not there, as with runs of earlier versions."""
    if not path.exists():
        return ()
    file = read_tensors(path, KIND)
    try:
        shots = tuple(
            Snapshot(int(iteration), float(passes), float(loss), file.tensors[f"candidates.{index}"])
            for index, (iteration, passes, loss) in enumerate(file.meta["snapshots"])
        )
        if not all(_is_whole(shot) for shot in shots):
            raise ValueError("candidates or losses that are not finite")
        return shots
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise ExhumeError(f"expected whole snapshots in {path}, found damage at {problem}; attack again") from problem


def _is_whole(shot: Snapshot) -> bool:
    rows = shot.candidates
    if not (math.isfinite(shot.passes) and math.isfinite(shot.loss)):
        return False
    return rows.ndim == 2 and rows.is_floating_point() and bool(torch.isfinite(rows).all())
