"""`exhume serve` as a process: hostile requests by the hundred, then a kill in the midst of an audit, then SIGTERM.

    python soak/web.py --requests 300 --json web.json

After all of it the page still opens; nothing was answered with a fault, nothing of this machine was told, and reports
that are there are whole.
"""

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from contents import unreadable
from faults import Case, summary
from kill_scenes import _write_network
from outcome import finish

PATHS = (
    *("", "files", "audits", "page.js", "nothing", "files/..", "gauge?p=-1&d=x", "starts?size=99999999999999"),
    *("audits/../../etc/passwd", "audits/%2e%2e%2f%2e%2e/report", "audits/%00/report", "compare?audit=..&audit=/etc"),
)
HOSTS = ("{own}", "{own}", "{own}", "evil.example", "127.0.0.1", "localhost:1", "")
ORIGINS = ("http://{own}", "http://{own}", "https://evil.example", "null", None)
BODIES = (b"", b"{", b"null", b"[" * 100_000, b'{"weights": "../../etc/passwd"}', b"\x00" * 70_000, b'{"a":1,"a":2}')
METHODS = ("GET", "GET", "POST", "POST", "DELETE", "PUT", "OPTIONS", "TRACE")
FINE = (200, 201, 400, 403, 404, 405, 408, 409, 411, 413, 414, 415, 421, 422, 503, 507)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="exhume-web-") as name:
        place = Path(name)
        _write_network(place / "network")
        cases = [hostile(place, asked.requests, random.Random(asked.seed)), killed(place), told_to_end(place)]
    for case in cases:
        print(f"{case.name}: {case.said}", *case.faults, sep="\n  ", flush=True)
    result = summary(cases, time.monotonic() - began)
    line = f"{asked.requests} hostile requests, a kill, SIGTERM: {len(result['faults'])} promises broken"
    return finish({**result, "seed": asked.seed, "requests": asked.requests}, asked.json, line)


class Server:
    """The command, and its address."""

    def __init__(self, place: Path, name: str) -> None:
        self.out, self.private = place / name, place / f"{name} temporary"
        self.private.mkdir()
        environment = os.environ | {"TMPDIR": str(self.private), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "exhume", "serve", "--out", str(self.out), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert self.process.stdout is not None
        address = json.loads(self.process.stdout.readline())["address"]
        self.host, self.token = address.split("/")[2], address.split("/")[3]

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            given = {"Host": self.host, "Origin": f"http://{self.host}", **headers}
            connection.request(method, f"/{self.token}/{path}", body, given)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def opens(self) -> bool:
        return b"What does your model give away?" in self.ask("GET", "")[1]

    def end(self, number: signal.Signals) -> str:
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return said.decode(errors="replace")


def hostile(place: Path, requests: int, chance: random.Random) -> Case:
    server, case = Server(place, "hostile"), Case(f"{requests} hostile requests")
    plans = [tuple(map(chance.choice, (METHODS, PATHS, HOSTS, ORIGINS, BODIES))) for _ in range(requests)]
    counts: dict[int, int] = {}

    def send(plan: tuple[str, ...]) -> tuple[int, bytes]:
        method, path, host, origin, body = plan
        headers = {"Host": host.format(own=server.host), "Content-Type": "application/json"}
        if origin is not None:
            headers["Origin"] = origin.format(own=server.host)
        try:
            return server.ask(method, path, body, **headers)  # type: ignore[arg-type]
        except (OSError, http.client.HTTPException):
            return 400, b""  # closed without a word

    slow = [socket.create_connection(server.host.split(":"), timeout=60) for _ in range(50)]  # which say nothing
    with ThreadPoolExecutor(16) as pool:
        for plan, (status, answer) in zip(plans, pool.map(send, plans), strict=True):
            counts[status] = counts.get(status, 0) + 1
            if status not in FINE:
                case.faults.append(f"answered with {status}: {plan[:4]}")
            if b"root:" in answer or str(place).encode() in answer:
                case.faults.append(f"told of this machine: {plan[:4]}")
    if not server.opens():
        case.faults.append("the page does not open any more")
    for connection in slow:
        connection.close()
    said = server.end(signal.SIGINT)
    if "Traceback" in said:
        case.faults.append(f"a traceback: {said[-300:]}")
    case.exit_code = server.process.returncode
    case.said = ", ".join(f"{count} x {status}" for status, count in sorted(counts.items()))
    return case


def _begin(server: Server, network: Path) -> str:
    """Drops two states of a network and begins an audit on them; what became of that."""
    keys = {}
    for name in ("after", "before"):
        status, answer = server.ask(
            "POST", f"files?name={name}.safetensors", (network / f"{name}.safetensors").read_bytes()
        )
        keys[name] = json.loads(answer).get("key") if status == 200 else None
    form = {"weights": keys["after"], "initial": keys["before"], "budget": "1m"}
    status, answer = server.ask("POST", "audits", json.dumps(form).encode(), **{"Content-Type": "application/json"})
    return answer.decode() if status == 201 else f"refused: {status} {answer.decode(errors='replace')[:200]}"


def killed(place: Path) -> Case:
    """SIGKILL while an audit is at work: reports are whole, and a new server opens the folder."""
    server, case = Server(place, "killed"), Case("SIGKILL in the midst of an audit")
    case.said = _begin(server, place / "network")
    if case.said.startswith("refused"):
        case.faults.append(case.said)
    time.sleep(2)
    server.end(signal.SIGKILL)
    case.faults += [f"half a file: {name}" for name in unreadable(server.out)] if server.out.exists() else []
    again = Server(place, "again")
    if not again.opens():
        case.faults.append("a new server does not open")
    again.end(signal.SIGINT)
    time.sleep(10)  # the audit of the dead server ends by itself, or writes no more than whole folders
    case.faults += [f"half a file: {name}" for name in unreadable(server.out)] if server.out.exists() else []
    return case


def told_to_end(place: Path) -> Case:
    server, case = Server(place, "told"), Case("SIGTERM")
    began = _begin(server, place / "network")
    said = server.end(signal.SIGTERM)
    case.exit_code, case.said = server.process.returncode, began
    if "Traceback" in said:
        case.faults.append(f"a traceback: {said[-300:]}")
    left = [path.name for path in server.private.glob("exhume-*")]
    if left:
        case.faults.append(f"uploads were left: {left}")
    return case


if __name__ == "__main__":
    sys.exit(main())
