"""The server as a process: on the loopback alone, with a token, and nothing left at its end."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from exhume.errors import ExhumeError, UsageError
from exhume.serving.server import require_framework, serve
from exhume.serving.settings import ServeSettings


def test_it_serves_this_machine_until_ctrl_c_and_takes_its_folder_away(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "exhume", "serve", "--out", str(tmp_path / "audits"), "--json"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        (private,) = tmp_path.glob("exhume-*")
        assert private.stat().st_mode & 0o777 == 0o700
        with urllib.request.urlopen(address, timeout=60) as page:
            assert b"What does your model give away?" in page.read()
        port = int(address.split("/")[2].partition(":")[2])
        with socket.socket() as other, pytest.raises(OSError, match="refused"):
            other.connect(("127.0.0.2", port))  # another address of this very machine
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0
    assert "Traceback" not in said
    assert list(tmp_path.glob("exhume-*")) == []


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="expected a free port"):
            serve(tmp_path, port=taken.getsockname()[1])


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ExhumeError, match=r"pip install 'exhume\[web\]'"):
        require_framework()


def test_tokens_are_long_differ_and_are_not_printed_by_accident(tmp_path: Path) -> None:
    one, other = (ServeSettings(tmp_path, tmp_path, 1) for _ in range(2))
    assert one.token != other.token
    assert len(one.token) >= 32
    assert one.token not in repr(one)
