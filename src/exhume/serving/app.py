"""Which address leads where. Behind the guard; addresses are relative to the token.

GET    /                           the page to drop files on, and the audits that are done
POST   /outlines?name=NAME&size=S  some parts of a file; answers with its sizes and a first scan
POST   /files?name=NAME            a file as the body; answers with its key, its sizes and its scan
DELETE /files/KEY
GET    /gauge?p=P&d=D&n=N
POST   /audits                     starts one; the form as JSON
GET    /audits/KEY                 the page that watches it; with ?as=json how far it is
POST   /audits/KEY/stop            /resume, /again
GET    /audits/KEY/report          the report, for a frame without an origin
GET    /compare?audit=A&audit=B
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from exhume.auditing.what_if import OFFERED
from exhume.errors import ExhumeError, UsageError
from exhume.private_paths import without_folders
from exhume.serving import earlier, pages
from exhume.serving.audit_form import BUDGETS, AuditForm, Defences, offered_activations
from exhume.serving.audits import Audits
from exhume.serving.findings import can_scan, scan_file
from exhume.serving.guard import REPORT_PAGE, Guard
from exhume.serving.measuring import gauge_lines, measure
from exhume.serving.outline import FilePart, laid_out, read_parts
from exhume.serving.settings import ServeSettings
from exhume.serving.uploads import Refused, Upload, Uploads

LARGEST_FORM = 64 * 1024
LARGEST_OUTLINE = 16 * 2**20
MOST_COMPARED = 6


class Desk:
    """The answers, each of them a method of one request."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.uploads = Uploads(settings)
        self.audits = Audits(settings, self.uploads)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(pages.render(template, root=f"/{self.settings.token}/", **values), status)

    async def home(self, request: Request) -> Response:
        done = await asyncio.to_thread(earlier.list_audits, self.settings.out)
        at_work = [audit for audit in self.audits.known.values() if audit.running]
        return self.page(
            "home.html.jinja",
            done=done,
            at_work=at_work,
            out=self.settings.out.name,
            largest=self.settings.largest_upload,
            scans=can_scan(),
            activations=offered_activations(),
            budgets=BUDGETS,
            defences=OFFERED,
        )

    async def list_files(self, request: Request) -> Response:
        return JSONResponse({"files": list(self.uploads.files)})

    async def take_file(self, request: Request) -> Response:
        try:
            upload = await self.uploads.take(request.query_params.get("name", ""), _declared(request), _body(request))
        except ClientDisconnect:
            raise Refused(400, "expected the whole file, found the connection closed") from None
        return JSONResponse(await asyncio.to_thread(_described, upload))

    async def take_outline(self, request: Request) -> Response:
        size = _count(request.query_params.get("size"), "size")
        body = await _small_body(request, LARGEST_OUTLINE, self.settings.patience)
        if size is None or size > self.settings.largest_upload:
            raise UsageError(f"expected the size of the file, at most {self.settings.largest_upload:,}, found another")
        parts = read_parts(body, size)
        name = request.query_params.get("name", "")
        return JSONResponse(await asyncio.to_thread(_outlined, parts, name, size, self.settings.private))

    async def remove_file(self, request: Request) -> Response:
        key = request.path_params["key"]
        self.uploads.get(key)
        if key in self.audits.files_in_use():
            raise Refused(409, "expected a file that no audit reads, found one at work on it; stop it first")
        self.uploads.remove(key)
        return JSONResponse({"removed": key})

    async def gauge(self, request: Request) -> Response:
        numbers = {name: _count(request.query_params.get(name), name) for name in ("p", "d", "n")}
        p, d = numbers["p"], numbers["d"]
        if p is None or d is None:
            raise UsageError("expected p and d, found one of them missing")
        return JSONResponse(gauge_lines(p, d, numbers["n"]))

    async def start(self, request: Request) -> Response:
        audit = self.audits.start(AuditForm.read(await _form(request, self.settings.patience)))
        return JSONResponse({"audit": audit.key}, 201)

    async def again(self, request: Request) -> Response:
        audit = self.audits.again(
            request.path_params["key"], Defences.read(await _form(request, self.settings.patience)).what_if
        )
        return JSONResponse({"audit": audit.key}, 201)

    async def stop(self, request: Request) -> Response:
        audit = self.audits.get(request.path_params["key"])
        audit.stop()
        return JSONResponse(audit.status())

    async def resume(self, request: Request) -> Response:
        return JSONResponse(self.audits.resume(request.path_params["key"]).status())

    async def audit(self, request: Request) -> Response:
        key = request.path_params["key"]
        running = self.audits.find(key)
        if request.query_params.get("as") == "json":
            if running is None:
                raise Refused(404, "expected an audit of this session, found none of this name")
            return JSONResponse(await asyncio.to_thread(running.status))
        done = None if running is not None else await asyncio.to_thread(earlier.read_audit, self.settings.out, key)
        key = key if running is None else running.key
        return self.page("audit.html.jinja", key=key, running=running, done=done, defences=OFFERED)

    async def report(self, request: Request) -> Response:
        key = request.path_params["key"]
        running = self.audits.find(key)
        path = running.report if running is not None else earlier.folder_of(self.settings.out, key) / earlier.REPORT
        if path is None or not path.is_file():
            raise Refused(404, "expected a report, found none yet")
        headers = {"Content-Security-Policy": REPORT_PAGE}
        return FileResponse(path, media_type="text/html; charset=utf-8", headers=headers)

    async def compare(self, request: Request) -> Response:
        keys = list(dict.fromkeys(request.query_params.getlist("audit")))[:MOST_COMPARED]
        if len(keys) < 2:
            raise UsageError("expected two audits or more to compare, found fewer; choose them on the first page")
        audits = [await asyncio.to_thread(earlier.read_audit, self.settings.out, key) for key in keys]
        return self.page("compare.html.jinja", audits=audits, lines=earlier.compare(audits))

    async def complain(self, request: Request, problem: Exception) -> Response:
        """One line, as JSON for the script and as a page for people."""
        status, reason = _answer(problem)
        if "text/html" in request.headers.get("accept", ""):
            return self.page("complaint.html.jinja", status, reason=reason)
        return JSONResponse({"problem": reason}, status)

    async def style(self, request: Request) -> Response:
        return Response(pages.style(), media_type="text/css")

    async def script(self, request: Request) -> Response:
        return Response(pages.script(), media_type="text/javascript")


def make_app(settings: ServeSettings) -> tuple[ASGIApp, Desk]:
    """The application, and the desk for whoever ends it."""
    desk = Desk(settings)
    routes = [
        Route("/", desk.home),
        Route("/outlines", desk.take_outline, methods=["POST"]),
        Route("/files", desk.list_files),
        Route("/files", desk.take_file, methods=["POST"]),
        Route("/files/{key}", desk.remove_file, methods=["DELETE"]),
        Route("/gauge", desk.gauge),
        Route("/audits", desk.start, methods=["POST"]),
        Route("/audits/{key}", desk.audit),
        Route("/audits/{key}/stop", desk.stop, methods=["POST"]),
        Route("/audits/{key}/resume", desk.resume, methods=["POST"]),
        Route("/audits/{key}/again", desk.again, methods=["POST"]),
        Route("/audits/{key}/report", desk.report),
        Route("/compare", desk.compare),
        Route("/page.css", desk.style),
        Route("/page.js", desk.script),
    ]
    kinds: tuple[Any, ...] = (ExhumeError, HTTPException, Exception)
    inside = Starlette(routes=routes, exception_handlers=dict.fromkeys(kinds, desk.complain))
    inside.router.redirect_slashes = False
    return Guard(inside, settings), desk


def _answer(problem: Exception) -> tuple[int, str]:
    match problem:
        case Refused():
            return problem.status, str(problem)
        case UsageError():
            return 422, without_folders(str(problem))
        case ExhumeError():
            return 404, without_folders(str(problem))
        case HTTPException():
            return problem.status_code, "expected an address of this server, found none such; go back to the first page"
    return 500, f"expected to get through, found a fault: {type(problem).__name__}; see the terminal"


def _described(upload: Upload) -> dict[str, Any]:
    """What is known of a file at once. A file that is no weights is kept all the same: it may be records."""
    return {"key": upload.key, "name": upload.name, "size": upload.size} | _known_of(upload.path, numbers=True)


def _outlined(parts: list[FilePart], name: str, size: int, folder: Path) -> dict[str, Any]:
    with laid_out(parts, name, size, folder) as path:
        return {"name": path.name, "size": size} | _known_of(path, numbers=False)


def _known_of(path: Path, numbers: bool) -> dict[str, Any]:
    told: dict[str, Any] = {}
    try:
        told["measured"] = measure(path).to_json()
    except ExhumeError as problem:
        told["problem"] = str(problem)
    return told | {"scan": scan_file(path, numbers)}


async def _body(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        yield chunk


async def _form(request: Request, patience: float) -> bytes:
    """A small JSON body. The type is asked for because a form of another site cannot have it."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise Refused(415, "expected application/json, found another type")
    return await _small_body(request, LARGEST_FORM, patience)


async def _small_body(request: Request, largest: int, patience: float) -> bytes:
    """Whole within `patience` seconds: whoever sends it byte by byte keeps nobody waiting."""
    body = bytearray()
    try:
        async with asyncio.timeout(patience):
            async for chunk in request.stream():
                body += chunk
                if len(body) > largest:
                    raise Refused(413, f"expected at most {largest:,} bytes, found more")
    except TimeoutError:
        raise Refused(408, "expected the whole request, found its end missing for too long") from None
    except ClientDisconnect:
        raise Refused(400, "expected the whole request, found the connection closed") from None
    return bytes(body)


def _declared(request: Request) -> int | None:
    told = request.headers.get("content-length")
    return int(told) if told is not None and told.isascii() and told.isdigit() else None


def _count(text: str | None, name: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise UsageError(f"expected {name} to be a whole number, found {text[:40]!r}")
    return int(text)
