"""A few candidates of an attack on its way, kept by an onlooker: what a reader scrubs through later.

Nobody knows beforehand how long an attack will run, so every s-th iteration is kept, and once there are twice as many
as wanted every other one is dropped and s doubles: at any time the kept ones are evenly spread and bounded in number.
Their memory is bounded too: large candidates are kept less often, and not at all where a few would be too many.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.loop import Progress
from exhume.errors import ExhumeError
from exhume.files import read_tensors, write_tensors
from exhume.reconstruction import Reconstruction

KIND = "snapshots"
SNAPSHOTS_FILE = "snapshots.safetensors"
WANTED = 12
FEWEST = 4
MOST_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Candidates at one iteration."""

    iteration: int
    passes: float
    loss: float
    candidates: Float[Tensor, "m d"]


@dataclass
class SnapshotKeeper:
    """Watches an attack. `stride` is the s above; `most` how many are kept in the end at most."""

    most: int = WANTED
    most_bytes: int = MOST_BYTES
    stride: int = 1
    kept: list[Snapshot] = field(default_factory=list)

    def __call__(self, progress: Progress) -> None:
        step = progress.step
        if step.candidates.numel() == 0:
            return
        due = not self.kept or step.iteration >= self.kept[-1].iteration + self.stride
        if not due:
            return
        room = self._room(step.candidates)
        if room < FEWEST:
            return
        # single precision: half of it would show as a floor of the errors
        copied = step.candidates.detach().to(device="cpu", dtype=torch.float32, copy=True)
        self.kept.append(Snapshot(step.iteration, progress.passes, step.loss, copied))
        while len(self.kept) >= 2 * room:
            self.stride *= 2
            self.kept = [snapshot for index, snapshot in enumerate(self.kept) if index % 2 == 0]

    def pages(self) -> dict[str, Tensor]:
        """All that a keeper needs to go on as if nothing had happened."""
        lines = [[shot.iteration, shot.passes, shot.loss] for shot in self.kept]
        pages = {f"candidates.{index}": shot.candidates for index, shot in enumerate(self.kept)}
        return {**pages, "lines": torch.tensor(lines, dtype=torch.float64), "stride": torch.tensor(self.stride)}

    def restore(self, pages: dict[str, Tensor]) -> None:
        """Goes on from the pages of another keeper; from none at all, as in files of the first form, afresh."""
        if not pages:
            return
        self.stride = int(pages["stride"])
        self.kept = [
            Snapshot(int(iteration), passes, loss, pages[f"candidates.{index}"])
            for index, (iteration, passes, loss) in enumerate(pages["lines"].tolist())
        ]

    def _room(self, candidates: Tensor) -> int:
        return min(self.most, self.most_bytes // (2 * 4 * candidates.numel()))

    def of(self, found: Reconstruction) -> tuple[Snapshot, ...]:
        """Those of an attack that found this: none where candidates on the way were pieces of what was found."""
        return () if "pieces" in found.facts else self.snapshots()

    def snapshots(self) -> tuple[Snapshot, ...]:
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
