"""One file over HTTP, continued where an earlier attempt or an earlier run stopped."""

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from exhume.errors import ExhumeError
from exhume.version import VERSION

Progress = Callable[[int, int | None], object]

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 30.0
FRUITLESS_ATTEMPTS = 4
BUSY_STATUSES = (408, 425, 429, 500, 502, 503, 504)


class _CutOff(Exception):
    """The connection ended before the file did; another attempt may continue."""


@dataclass(frozen=True)
class _Body:
    """Where the body of an answer belongs in the file, and how long the whole file is."""

    start: int
    total: int | None


def download(url: str, part: Path, progress: Progress, retry_pause: float = 1.0) -> None:
    """Bring `part` to the whole content of `url`.

    A server that takes ranges continues the file, any other sends it from the start. Attempts go on as long as one of
    them comes further than all before; after FRUITLESS_ATTEMPTS in a row that do not, `part` stays for another run.
    """
    furthest = _size(part)
    fruitless = 0
    while True:
        try:
            _attempt(url, part, progress)
            return
        except _CutOff as cut:
            reached = _size(part)
            fruitless = 0 if reached > furthest else fruitless + 1
            furthest = max(furthest, reached)
            if fruitless >= FRUITLESS_ATTEMPTS:
                raise ExhumeError(
                    f"expected the whole of {url}, found {cut} after {reached:,} bytes; "
                    "run the same command again to continue from there"
                ) from cut
        time.sleep(retry_pause * 2**fruitless)


def discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _etag_file(part).unlink(missing_ok=True)


def _attempt(url: str, part: Path, progress: Progress) -> None:
    offset = _size(part)
    try:
        with urllib.request.urlopen(_request(url, part, offset), timeout=TIMEOUT_SECONDS) as response:
            body = _body(response, part, offset)
            _write(response, part, body, progress)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and _total_of(error.headers.get("Content-Range")) == offset:
                progress(offset, offset)
                return
            _explain(url, part, error)
    except urllib.error.URLError as error:
        raise _CutOff(f"no connection ({error.reason})") from error
    except (http.client.HTTPException, OSError) as error:
        raise _CutOff(f"a broken connection ({error or type(error).__name__})") from error


def _request(url: str, part: Path, offset: int) -> urllib.request.Request:
    headers = {"User-Agent": f"exhume/{VERSION}", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        # Without it, a file that changed on the server would be glued to the beginning of the old one.
        with suppress(FileNotFoundError):
            headers["If-Range"] = _etag_file(part).read_text(encoding="latin-1")
    return urllib.request.Request(url, headers=headers)


def _body(response: http.client.HTTPResponse, part: Path, offset: int) -> _Body:
    if response.status == 206:
        content_range = response.headers.get("Content-Range") or ""
        start = re.match(r"bytes (\d+)-", content_range)
        if start is None or int(start[1]) != offset:
            discard(part)
            raise _CutOff(f"an answer for other bytes ({content_range or 'without Content-Range'})")
        return _Body(start=offset, total=_total_of(content_range))
    _remember_etag(part, response.headers.get("ETag") or "")
    length = response.headers.get("Content-Length") or ""
    return _Body(start=0, total=int(length) if length.isdecimal() else None)


def _remember_etag(part: Path, etag: str) -> None:
    try:
        # A weak tag says "about the same", which is not enough to continue in the middle.
        if etag.startswith('"'):
            _etag_file(part).write_text(etag, encoding="latin-1")
        else:
            _etag_file(part).unlink(missing_ok=True)
    except OSError as error:
        raise ExhumeError(f"expected to write {_etag_file(part)}, found: {error.strerror}") from error


def _write(response: http.client.HTTPResponse, part: Path, body: _Body, progress: Progress) -> None:
    done = body.start
    with _open(part, "ab" if body.start else "wb") as file:
        progress(done, body.total)
        # Without a length from the server the end of the stream is all there is to go by; the checksum decides.
        while chunk := response.read(CHUNK_BYTES):
            try:
                file.write(chunk)
                file.flush()
            except OSError as error:
                raise ExhumeError(f"expected room for {part}, found: {error.strerror}; free some and repeat") from error
            done += len(chunk)
            progress(done, body.total)
    if body.total is not None and done < body.total:
        raise _CutOff(f"the connection closed, {body.total - done:,} of {body.total:,} bytes missing,")


def _explain(url: str, part: Path, error: urllib.error.HTTPError) -> None:
    """Raise what an HTTP status means: try again, or give up."""
    if error.code == 416:
        discard(part)
        raise _CutOff("a file that is shorter than the part here") from error
    if error.code in BUSY_STATUSES:
        raise _CutOff(f"a busy server (HTTP {error.code})") from error
    raise ExhumeError(f"expected a file at {url}, found HTTP {error.code} {error.reason}; give another source")


def _total_of(content_range: str | None) -> int | None:
    """
    >>> _total_of("bytes 5-9/10"), _total_of("bytes */10"), _total_of("bytes 5-9/*"), _total_of(None)
    (10, 10, None, None)
    """
    total = re.search(r"/(\d+)\s*$", content_range or "")
    return int(total[1]) if total else None


def _open(path: Path, mode: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise ExhumeError(f"expected to write {path}, found: {error.strerror}") from error


def _etag_file(part: Path) -> Path:
    return part.with_name(part.name + ".etag")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
