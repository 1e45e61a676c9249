"""Audits as processes of their own: `exhume audit` with a folder that says how far it is.

Each can be stopped as on a terminal, by SIGINT: it writes a report of what it has found. It goes on from the folder of
its progress in another process. One runs at a time, because two would take each other's time.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError, UsageError
from exhume.files import read_json
from exhume.private_paths import without_folders
from exhume.requests.audit import AuditRequest
from exhume.requests.command_line import arguments
from exhume.serving.audit_form import AuditForm
from exhume.serving.earlier import REPORT
from exhume.serving.settings import ServeSettings
from exhume.serving.uploads import Uploads
from exhume.strict_json import parse_json

PROGRAM = (sys.executable, "-P", "-m", "exhume", "audit")
"""-P: nothing of the folder that it starts in is code."""
INTERRUPTED = 130
LONGEST_NAME = 60
LAST_WORDS = 20_000  # bytes of standard error
SECONDS_TO_END = 10.0


@dataclass
class RunningAudit:
    """One audit of this session, over as many processes as it takes. `sitting` counts them."""

    key: str
    form: AuditForm
    request: AuditRequest
    folder: Path
    sitting: int = 0
    process: subprocess.Popen[bytes] | None = None
    asked_to_stop: bool = False
    began: float = 0.0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def state(self) -> str:
        """`running`, `stopping`, `stopped`, `done` or `failed`."""
        if self.running:
            return "stopping" if self.asked_to_stop else "running"
        code = None if self.process is None else self.process.returncode
        # a process that was stopped while it was starting has no code of ours
        return "done" if code == 0 else "stopped" if self.asked_to_stop or code == INTERRUPTED else "failed"

    @property
    def report(self) -> Path | None:
        """Of the last sitting that wrote one."""
        folders = (self._folder(sitting) for sitting in range(self.sitting, 0, -1))
        return next((folder / REPORT for folder in folders if (folder / REPORT).is_file()), None)

    @property
    def reading(self) -> bool:
        """Whether it has begun no attack in this sitting."""
        try:
            return self._progress_file.stat().st_mtime < self.began
        except OSError:
            return True

    @property
    def _progress_file(self) -> Path:
        return self.folder / "progress" / "progress.json"

    def _folder(self, sitting: int) -> Path:
        """Where a sitting writes its report."""
        return self.request.out.with_name(self.key if sitting == 1 else f"{self.key}.{sitting}")

    def begin(self) -> None:
        """Another process. One that goes on writes a report of its own, and then the one before is removed."""
        self.sitting += 1
        self.request = self.request.model_copy(update={"out": self._folder(self.sitting)})
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [*PROGRAM, *arguments(self.request), "--json"]
        self.asked_to_stop, self.began = False, time.time()
        with (self.folder / "stdout").open("wb") as printed, (self.folder / "stderr").open("wb") as said:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C on the server's terminal is the server's to pass on
            )

    def stop(self) -> None:
        """Once: it ends after its current step and writes a report. Twice: at once."""
        if self.running and self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.asked_to_stop = True

    def end(self) -> None:
        """At the end of the server, whatever it takes."""
        if self.process is None or not self.running:
            return
        self.asked_to_stop = True
        for ask in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, ask)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(SECONDS_TO_END / 2)
                return

    def tidy(self) -> None:
        """Removes the reports of earlier sittings, once a later one has written its own."""
        last = self.report
        for sitting in range(1, self.sitting):
            if last is not None and self._folder(sitting) != last.parent:
                shutil.rmtree(self._folder(sitting), ignore_errors=True)

    def progress(self) -> dict[str, Any]:
        """What the process says of itself; nothing before it has begun its first attack."""
        with suppress(ExhumeError):
            return read_json(self._progress_file)
        return {}

    def said(self) -> list[str]:
        """The lines of standard error, without folders of this machine."""
        try:
            with (self.folder / "stderr").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_WORDS))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [without_folders(line) for line in lines if line.strip()]

    def result(self) -> dict[str, Any] | None:
        """What it printed at its end."""
        try:
            printed = (self.folder / "stdout").read_bytes().strip().rpartition(b"\n")[2]
            found = parse_json(printed)
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def status(self) -> dict[str, Any]:
        """For the page that watches it."""
        state, told = self.state, self.progress()
        used = float(told.get("spent") or 0.0)
        working = state in ("running", "stopping")
        if not working:
            self.tidy()  # a sitting may have ended since this audit was looked up
        result = None if working else self.result()
        shown = ("part", "attack", "of", "method", "why", "iteration", "iterations", "loss", "candidates", "pictures")
        return {
            "state": state,
            "reading": self.reading,
            "budget": self.request.budget,
            "used": used,
            "left": max(0.0, self.request.budget - used),
            **{name: told.get(name) for name in shown},
            "said": self.said()[-12:],
            "report": self.report is not None,
            "verdict": None if result is None else result.get("verdict"),
            "sentence": None if result is None else result.get("sentence"),
        }


@dataclass
class Audits:
    """All audits of this session."""

    settings: ServeSettings
    uploads: Uploads
    known: dict[str, RunningAudit] = field(default_factory=dict)

    def start(self, form: AuditForm) -> RunningAudit:
        """Refuses at once what the options alone show to be wrong."""
        self._require_rest()
        key = self._new_key(self.uploads.get(form.weights).path.stem)
        folder = self.settings.private / "audits" / key
        request = form.request(self.uploads, self.settings.out / key, folder / "progress")
        request.check()
        audit = RunningAudit(key, form, request, folder)
        self.settings.out.mkdir(parents=True, exist_ok=True)
        audit.begin()
        self.known[key] = audit
        return audit

    def resume(self, key: str) -> RunningAudit:
        audit = self.get(key)
        self._require_rest()
        if audit.state == "done":
            raise UsageError("expected an audit that was stopped, found one that is done; start another")
        audit.begin()
        return audit

    def again(self, key: str, what_if: tuple[str, ...]) -> RunningAudit:
        """The same audit with defences."""
        return self.start(AuditForm.model_validate(self.get(key).form.model_dump() | {"what_if": what_if}))

    def get(self, key: str) -> RunningAudit:
        found = self.find(key)
        if found is None:
            raise UsageError("expected an audit of this session, found none of this name")
        return found

    def find(self, key: str) -> RunningAudit | None:
        """By its key, or by the name of the folder of any of its sittings."""
        found = self.known.get(key.partition(".")[0])
        if found is not None:
            found.tidy()
        return found

    def end(self) -> None:
        for audit in self.known.values():
            audit.end()

    def files_in_use(self) -> set[str]:
        return {key for audit in self.known.values() if audit.running for key in audit.form.file_keys()}

    def _require_rest(self) -> None:
        if any(audit.running for audit in self.known.values()):
            raise UsageError("expected one audit at a time, found one at work; stop it or wait for its end")

    def _new_key(self, stem: str) -> str:
        """A name for the folder: that of the weights, and the time. Only letters that any address can have."""
        plain = re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:LONGEST_NAME] or "model"
        base = f"{plain}-{datetime.now():%Y%m%d-%H%M%S}"
        names: Iterator[str] = (base if count == 1 else f"{base}-{count}" for count in range(1, 10_000))
        return next(name for name in names if not (self.settings.out / name).exists() and name not in self.known)
