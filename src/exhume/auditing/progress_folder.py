"""How far an audit is, in a folder of its own, and what it goes on from after it was stopped.

`progress.json` is written anew at most once per second: the attack at work, its iteration and loss, the time used, and
a few candidates as pictures, blurred as on a page. Beside it lies a checkpoint of each attack. An audit that is asked
for again with the same folder goes on: each attack continues from its checkpoint with the share of the time that it had
been given, so that one that had ended by itself ends by itself again, and the time used before counts.

All of it is made of training data: nobody but the owner may look into the folder.
"""

import hashlib
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exhume.attacks.foundation.planned_attack import PlannedAttack
from exhume.attacks.running.loop import Progress
from exhume.errors import ExhumeError, UsageError
from exhume.files import check_schema, read_json, write_json
from exhume.folder_lock import alone_in
from exhume.observation import Observation
from exhume.report.pictures import blurred, to_base64_png
from exhume.requests.audit import AuditOptions

SCHEMA = 1
WITHOUT_EFFECT = ("out", "progress", "reveal", "fail_on")
"""Options that change nothing of the attacks."""
NOTHING: Mapping[str, str] = MappingProxyType({})
PROGRESS_FILE = "progress.json"
EVERY_SECONDS = 1.0
MOST_PICTURES = 12


@dataclass
class ProgressFolder:
    """`asked` is what the audit was asked for, `budget` its time; `spent` is what earlier sessions used of it."""

    path: Path
    asked: dict[str, Any]
    budget: float
    spent: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    noted: dict[str, Any] = field(default_factory=dict)
    last_noted: float = -math.inf

    @classmethod
    def open(cls, path: Path, request: AuditOptions, given: Mapping[str, str] = NOTHING) -> "ProgressFolder":
        """A new folder, or one that the same audit left. `given`: what was audited, if the request does not name it."""
        asked = {name: value for name, value in request.to_config().items() if name not in WITHOUT_EFFECT} | dict(given)
        file = path / PROGRESS_FILE
        if path.exists() and not file.exists() and any(_visible(path)):
            raise UsageError(f"expected a new folder for --progress, found {path} with other files; name a new one")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        if not file.exists():
            return cls(path, asked, request.budget)
        kept = read_json(file)
        check_schema(kept, file)
        try:
            if kept["asked"] != asked:
                raise UsageError(f"expected the progress of the same audit in {path}, found another's; name a new one")
            shares = {str(name): float(share) for name, share in kept["shares"].items()}
            return cls(path, asked, request.budget, float(kept["spent"]), shares)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise ExhumeError(f"expected the progress of an audit in {file}, found damage at {problem}") from problem

    @classmethod
    @contextmanager
    def of_request(cls, request: AuditOptions, given: Mapping[str, str] = NOTHING) -> Iterator["ProgressFolder | None"]:
        """The folder that an audit asks for, if any, for that audit alone."""
        if request.progress is None:
            yield None
            return
        folder = cls.open(request.progress, request, given)
        with alone_in(folder.path, "this audit"):
            yield cls.open(folder.path, request, given)  # again: whoever had it may have gone on until now

    @property
    def used(self) -> float:
        return self.spent + time.monotonic() - self.began

    def of(self, part: str, observation: Observation) -> "ProgressPart":
        """Attacks on the weights as published, or on those of a defence."""
        return ProgressPart(self, part, observation.image_shape)

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last_noted >= EVERY_SECONDS

    def write(self, **noted: Any) -> None:
        self.noted |= noted
        kept = {"schema": SCHEMA, "asked": self.asked, "budget": self.budget, "spent": round(self.used, 2)}
        write_json(self.path / PROGRESS_FILE, kept | {"shares": self.shares} | self.noted)


def _visible(path: Path) -> Iterator[str]:
    """What is in a folder, but for what a killed process may have left there."""
    return (entry.name for entry in path.iterdir() if not entry.name.startswith("."))


@dataclass(frozen=True)
class ProgressPart:
    """The attacks of one plan. `share` and `checkpoint` go by the place of an attack in it."""

    folder: ProgressFolder
    name: str
    image_shape: tuple[int, int, int] | None

    @property
    def further(self) -> "ProgressPart":
        """Further starts after those of this plan."""
        return replace(self, name=f"{self.name}, another start")

    def share(self, index: int, share: float) -> float:
        """The seconds that an attack was given when it began."""
        given = self.folder.shares.setdefault(f"{self.name} {index}", share)
        self.folder.write()
        return given

    def has_begun(self, index: int) -> bool:
        return f"{self.name} {index}" in self.folder.shares

    def checkpoint(self, index: int) -> Path:
        part = hashlib.blake2b(self.name.encode(), digest_size=4).hexdigest()  # a defence may be named by anything
        return self.folder.path / f"{part}-{index}.checkpoint.safetensors"

    def note(self, index: int, of: int, offer: PlannedAttack, progress: Progress) -> None:
        """After each iteration; most of them are too soon to be written."""
        if not self.folder.due:
            return
        self.folder.last_noted = time.monotonic()
        step = progress.step
        self.folder.write(
            part=self.name,
            attack=index + 1,
            of=of,
            method=offer.method,
            why=offer.why,
            iteration=step.iteration,
            iterations=progress.iterations,
            loss=step.loss if math.isfinite(step.loss) else None,
            candidates=len(step.candidates),
            pictures=self._pictures(progress),
        )

    def _pictures(self, progress: Progress) -> list[str]:
        """The first candidates, where they are pictures: what was blurred away is not in the file."""
        rows, shape = progress.step.candidates[:MOST_PICTURES], self.image_shape
        if shape is None or not len(rows) or rows.shape[1] != shape[0] * shape[1] * shape[2]:
            return []
        rows = rows.detach().cpu().double().nan_to_num(0.0, 0.0, 0.0)
        low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
        pictures = ((rows - low) / (high - low).clamp_min(1e-12)).reshape(-1, *shape)
        return [to_base64_png(picture) for picture in blurred(pictures)]
