"""Requests that nobody's browser would make, against a real socket: slow, silent, huge, many at once."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvicorn

from exhume.serving.app import make_app
from exhume.serving.server import hurried
from exhume.serving.settings import ServeSettings

TOKEN = "t0ken-of-the-tests"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeSettings]:
    """The application behind a socket, in a hurry."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    settings = ServeSettings(tmp_path, tmp_path / "out", listener.getsockname()[1], TOKEN, patience=0.5)
    config = uvicorn.Config(
        make_app(settings)[0],
        http=hurried(0.5),
        log_level="critical",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield settings
    server.should_exit = True
    thread.join(30)
    assert not thread.is_alive()


def head(settings: ServeSettings, method: str, path: str, *more: str) -> bytes:
    host = settings.hosts[0]
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Origin: http://{host}", *more, "", ""]
    return "\r\n".join(lines).encode()


def talk(settings: ServeSettings, *said: bytes, pause: float = 0.0) -> bytes:
    """Says it piece by piece, and hears the answer out."""
    with socket.create_connection(("127.0.0.1", settings.port), timeout=20) as connection:
        for words in said:
            try:
                connection.sendall(words)
            except OSError:
                break
            time.sleep(pause)
        heard = b""
        try:
            while more := connection.recv(2**16):
                heard += more
        except OSError:
            pass
        return heard


def opens(settings: ServeSettings) -> bool:
    with urllib.request.urlopen(settings.address, timeout=20) as page:
        return b"What does your model give away?" in page.read()


def test_connections_that_say_nothing_are_closed_and_keep_nobody_out(served: ServeSettings) -> None:
    with ExitStack() as silent:
        waiting = [
            silent.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20)) for _ in range(200)
        ]
        assert opens(served)
        assert all(connection.recv(1) == b"" for connection in waiting), "closed by the server"
    assert opens(served)


def test_a_request_line_that_comes_in_drops_is_given_up(served: ServeSettings) -> None:
    began = time.monotonic()
    heard = talk(served, *(bytes([letter]) for letter in b"GET /" + b"a" * 60), pause=0.05)
    assert heard == b""
    assert time.monotonic() - began < 15
    assert opens(served)


@pytest.mark.parametrize("path", ["audits", "outlines?name=a&size=9"])
def test_a_body_that_never_ends_is_given_up(served: ServeSettings, path: str) -> None:
    asked = head(served, "POST", f"/{TOKEN}/{path}", "Content-Type: application/json", "Content-Length: 50")
    assert b" 408 " in talk(served, asked, b"{").splitlines()[0]
    assert opens(served)


@pytest.mark.parametrize(
    "path",
    [
        f"/{TOKEN}/../../../etc/passwd",
        f"/{TOKEN}/audits/..%2f..%2fetc%2fpasswd/report",
        f"/{TOKEN}/audits/%2e%2e/report",
        f"/{TOKEN}/audits/..\\..\\x/report",
        f"/{TOKEN}//etc/passwd",
        f"/{TOKEN}/files/../../uploads",
        f"/{TOKEN}/page.css/../../x",
        f"http://evil.example/{TOKEN}/",
        "*",
        f"/{TOKEN}/audits/" + "a" * 30_000,
        f"/{TOKEN}/\x00",
    ],
)
def test_paths_lead_to_nothing_but_what_is_served(served: ServeSettings, path: str) -> None:
    heard = talk(served, head(served, "GET", path, "Connection: close"))
    status = int(heard.split()[1]) if heard else 400
    assert status in (400, 403, 404, 414, 422), heard[:200]
    assert b"root:" not in heard
    assert str(served.private).encode() not in heard


def test_a_declared_size_of_terabytes_is_refused_before_a_byte(served: ServeSettings) -> None:
    heard = talk(
        served, head(served, "POST", f"/{TOKEN}/files?name=a", f"Content-Length: {2**50}", "Connection: close")
    )
    assert b" 413 " in heard.splitlines()[0]
    assert not [path for path in served.private.rglob("*") if path.is_file()]


def test_headers_without_end_are_refused(served: ServeSettings) -> None:
    many = [f"X-{at}: {'a' * 100}" for at in range(2000)]
    heard = talk(served, head(served, "GET", f"/{TOKEN}/", *many))
    assert heard == b"" or b" 4" in heard.splitlines()[0]
    assert opens(served)


def test_many_at_once_are_all_answered(served: ServeSettings) -> None:
    body = b"x" * 200_000

    def drop(number: int) -> int:
        asked = head(
            served, "POST", f"/{TOKEN}/files?name={number}", f"Content-Length: {len(body)}", "Connection: close"
        )
        return int(talk(served, asked, body).split()[1])

    with ThreadPoolExecutor(24) as pool:
        codes = list(pool.map(drop, range(60)))
    assert set(codes) <= {200, 503}, "those over the limit are told to wait"
    assert codes.count(200) >= served.uploads_at_once
    assert opens(served)
    kept = [path for path in served.private.rglob("*") if path.is_file()]
    assert len(kept) == codes.count(200)
    assert {path.read_bytes() for path in kept} == {body}


def test_a_real_server_outlives_silence_and_noise(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "exhume", "serve", "--out", str(tmp_path / "audits"), "--json"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        port = int(address.split("/")[2].partition(":")[2])
        with ExitStack() as noise:
            for words in (b"", b"\x16\x03\x01\x02\x00", b"\0" * 1000, b"GET", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") * 20:
                connection = noise.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
                connection.sendall(words)
            with urllib.request.urlopen(address, timeout=60) as page:
                assert page.status == 200
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0
    assert "Traceback" not in said
    assert address.split("/")[3] not in said.replace(f"open {address}", "")
