"""Starts the server on a port of this machine that nobody else can reach, and takes everything away at its end."""

import asyncio
import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from exhume.errors import ExhumeError, UsageError
from exhume.serving.settings import HOST, LARGEST_UPLOAD, ServeSettings

MISSING = "expected the packages of exhume[web], found no {}; pip install 'exhume[web]'"
SECONDS_TO_CLOSE = 2
FIRST_WORDS = 10.0
"""Seconds within which a connection has to ask for something."""
MOST_CONNECTIONS = 500
"""At once: a browser opens six. It is below the number of files that a process may open."""


def require_framework() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as problem:
        raise ExhumeError(MISSING.format(problem.name)) from problem


def serve(
    out: Path,
    port: int = 0,
    largest_upload: int = LARGEST_UPLOAD,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Until Ctrl-C. `ready` is told the address once somebody can go there; port 0 is any that is free."""
    require_framework()
    import uvicorn

    from exhume.serving.app import make_app

    with _listening(port) as listener, _private_folder() as private:
        settings = ServeSettings(private, out.absolute(), listener.getsockname()[1], largest_upload=largest_upload)
        app, desk = make_app(settings)
        config = uvicorn.Config(
            app,
            http=hurried(FIRST_WORDS),
            limit_concurrency=MOST_CONNECTIONS,
            log_level="warning",
            access_log=False,  # addresses have the token
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=SECONDS_TO_CLOSE,
        )
        threading.Thread(target=_load_readers, daemon=True).start()
        try:
            ready(settings.address)
            with contextlib.suppress(KeyboardInterrupt):  # which uvicorn raises again after its own end
                uvicorn.Server(config).run(sockets=[listener])
        finally:
            desk.audits.end()


def hurried(seconds: float) -> type[asyncio.Protocol]:
    """The framework's own reading of HTTP, for connections that say what they want within some seconds.

    Others of this machine can reach the port. They are refused once they ask, so they must not stay without asking.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Hurried(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(seconds, self._require_words)

        def _require_words(self) -> None:
            if self.cycle is None and not self.transport.is_closing():
                self.transport.close()

    return Hurried


def _load_readers() -> None:
    """While the user looks for a file: torch takes seconds to load, and the first file should not wait for it."""
    import exhume.observing.weights_file
    import exhume.scanning.scan  # noqa: F401


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """Bound before anybody is told the address: nobody else can take the port in between."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as problem:
            raise UsageError(f"expected a free port, found {port}: {problem.strerror}; leave --port out") from problem
        listener.listen(128)
        yield listener


@contextmanager
def _private_folder() -> Iterator[Path]:
    """For the owner alone, and gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="exhume-"))  # 0700
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
