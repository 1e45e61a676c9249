"""A server without a socket: the application, asked by the framework's own client."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="no web framework: pip install 'exhume[web]'")

from starlette.testclient import TestClient

from exhume.serving.app import make_app
from exhume.serving.settings import ServeSettings

PORT = 5005
TOKEN = "t0ken-of-the-tests"
OWN = {"Host": f"127.0.0.1:{PORT}", "Origin": f"http://127.0.0.1:{PORT}", "Sec-Fetch-Site": "same-origin"}


class Asked:
    """A browser on the server's own page. `desk` is the other side of it."""

    def __init__(self, settings: ServeSettings) -> None:
        app, self.desk = make_app(settings)
        self.settings = settings
        self.client = TestClient(app, base_url=f"http://127.0.0.1:{PORT}", raise_server_exceptions=False)

    def __call__(self, method: str, path: str, headers: dict[str, str] | None = None, **options: Any) -> Any:
        """`path` is below the token; one that begins with a slash is taken as it is."""
        address = path if path.startswith("/") else f"/{TOKEN}/{path}"
        return self.client.request(method, address, headers=OWN if headers is None else headers, **options)

    def drop(self, name: str, content: bytes) -> Any:
        return self("POST", "files", params={"name": name}, content=content)


@pytest.fixture
def server(tmp_path: Path) -> Callable[..., Asked]:
    def make(**changed: Any) -> Asked:
        private = tmp_path / "private"
        private.mkdir(mode=0o700, exist_ok=True)
        return Asked(ServeSettings(private, tmp_path / "audits", PORT, TOKEN, **changed))

    return make


@pytest.fixture
def ask(server: Callable[..., Asked]) -> Asked:
    return server()
