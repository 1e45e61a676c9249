"""The page of two versions of a model: what every such page begins with, and the folder that it is written to."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exhume.files import replacing, write_json, write_text
from exhume.report.page import render_without_script
from exhume.requests.audit import AuditRequest
from exhume.requests.command_line import shown_line
from exhume.verdicts import Verdict
from exhume.version import VERSION


def about(request: AuditRequest, verdict: Verdict, reveal: bool) -> dict[str, Any]:
    """Which files, which verdict, and how the same page is made again."""
    assert request.against is not None
    with request.weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "name": request.weights.name,
        "older": request.against.name,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "title": verdict.title,
        "verdict": verdict.value,
        "revealed": reveal,
        "command": shown_line(request.model_copy(update={"progress": None})),
        "exhume": VERSION,
        "sha256": digest,
    }


def write_versions(
    out: Path, template: str, content: dict[str, Any], summary: dict[str, Any], write_records: Callable[[Path], None]
) -> Path:
    """A new folder with the page, its JSON and the summary; the records themselves only where they are revealed."""
    with replacing(out, folder=True) as folder:
        write_json(folder / "report.json", content)
        write_text(folder / "report.html", render_without_script(template, content))
        write_json(folder / "summary.json", summary | {"report": "report.html"})
        if content["revealed"]:
            write_records(folder / "recovered.csv")
    return out / "report.html"
