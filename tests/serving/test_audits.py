"""Audits on the page: as processes that are started, watched, stopped, resumed, read and compared.

The program is a stand-in here, which does with its folders what `exhume audit` does. The browser test has the real one.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exhume.activations import ACTIVATIONS, Activation, register_activation
from exhume.auditing.what_if import OFFERED, check_what_if
from exhume.serving import audits, earlier, findings

STAND_IN = """
import json, pathlib, signal, sys, time
words = sys.argv[1:]
value = lambda flag: pathlib.Path(words[words.index(flag) + 1])
progress, out = value("--progress"), value("--out")
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
progress.mkdir(exist_ok=True)
before = json.loads((progress / "progress.json").read_text())["spent"] if (progress / "progress.json").exists() else 0
told = {"schema": 1, "spent": before + 7, "part": "as published", "attack": 1, "of": 2, "method": "m", "why": "w",
        "iteration": 3, "iterations": 9, "loss": 0.5, "candidates": 2, "pictures": []}
(progress / "progress.json").write_text(json.dumps(told))
print("expected nothing, found /home/somebody/secret/w.pt", file=sys.stderr, flush=True)
if "endless" in words[0]:
    while not stopped:
        time.sleep(0.01)
if "broken" in words[0]:
    sys.exit(2)
out.mkdir(parents=True)
summary = {"verdict": "recovered" if not stopped else "inconclusive", "sentence": "A sentence.", "recovered": before}
(out / "summary.json").write_text(json.dumps(summary))
(out / "report.html").write_text("<!doctype html><title>r</title><script>1</script>" + " ".join(words))
print(json.dumps(summary))
sys.exit(130 if stopped else 0)
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(STAND_IN)
    monkeypatch.setattr(audits, "PROGRAM", (sys.executable, str(tmp_path / "program.py")))


@pytest.fixture
def begin(ask: Any) -> Iterator[Callable[..., str]]:
    def start(name: str, **more: Any) -> str:
        key, rows = (ask.drop(file, b"x").json()["key"] for file in (name, "V.safetensors"))
        found = ask("POST", "audits", json={"weights": key, "features": rows, "activation": "relu", **more})
        assert found.status_code == 201, found.text
        return str(found.json()["audit"])

    yield start
    ask.desk.audits.end()


def wait_for(ask: Any, key: str, *states: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        told: dict[str, Any] = ask("GET", f"audits/{key}?as=json").json()
        if told["state"] in states and (told["state"] != "running" or not told["reading"]):
            return told
        time.sleep(0.02)
    pytest.fail(f"expected {states}, found {told}")


def test_an_audit_is_watched_to_its_end_and_its_report_is_kept_in_a_frame(ask: Any, begin: Any) -> None:
    key = begin("net ä.pt", samples=3, what_if=["int8"], budget="1m")
    told = wait_for(ask, key, "done")
    assert (told["used"], told["left"], told["report"], told["sentence"]) == (7, 53, True, "A sentence.")
    assert told["said"] == ["expected nothing, found w.pt"]
    report = ask("GET", f"audits/{key}/report")
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert "same-origin" not in report.headers["content-security-policy"]
    assert "--samples 3 --budget 1m --what-if int8" in report.text
    page = ask("GET", f"audits/{key}", headers={"Host": "127.0.0.1:5005", "Accept": "text/html"}).text
    assert 'sandbox="allow-scripts allow-downloads"' in page
    assert "net ä.pt" in page


def test_stop_and_resume_go_on_from_the_same_progress(ask: Any, begin: Any) -> None:
    key = begin("endless.pt")
    wait_for(ask, key, "running")
    ask("POST", f"audits/{key}/stop")
    assert wait_for(ask, key, "stopped")["verdict"] == "inconclusive"
    assert ask("POST", f"audits/{key}/resume").status_code == 200
    wait_for(ask, key, "running")
    assert ask("POST", f"audits/{key}/resume").status_code == 422, "one at a time"
    ask("POST", f"audits/{key}/stop")
    assert wait_for(ask, key, "stopped")["used"] == 14
    (kept,) = earlier.list_audits(ask.settings.out)
    assert (kept.key, kept.summary["recovered"]) == (f"{key}.2", 7), "the report of the first sitting is gone"
    assert 'id="resume"' in ask("GET", f"audits/{key}.2").text, "by any name it is the audit of this session"


def test_one_at_a_time_and_its_files_stay(ask: Any, begin: Any) -> None:
    key = begin("endless.pt")
    file = next(iter(ask.desk.uploads.files))
    found = ask("POST", "audits", json={"weights": file, "features": file, "activation": "relu"})
    assert (found.status_code, "one audit at a time" in found.text) == (422, True)
    assert ask("DELETE", f"files/{file}").status_code == 409
    ask.desk.audits.end()
    assert ask.desk.audits.known[key].state == "stopped"
    assert ask("DELETE", f"files/{file}").status_code == 200


def test_an_audit_that_fails_says_why(ask: Any, begin: Any) -> None:
    told = wait_for(ask, begin("broken.pt"), "failed")
    assert told["said"] == ["expected nothing, found w.pt"]
    assert told["report"] is False


def test_again_with_a_defence_and_side_by_side(ask: Any, begin: Any) -> None:
    first = begin("net.pt")
    wait_for(ask, first, "done")
    second = ask("POST", f"audits/{first}/again", json={"what_if": ["prune50"]}).json()["audit"]
    wait_for(ask, second, "done")
    assert first != second
    assert "--what-if prune50" in ask("GET", f"audits/{second}/report").text
    page = ask("GET", "compare", params={"audit": [first, second]}).text
    assert first in page
    assert second in page
    assert ask("GET", "compare", params={"audit": [first, first]}).status_code == 422
    assert ask("POST", f"audits/{first}/again", json={"what_if": ["rm -rf"]}).status_code == 422


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"[]",
        b"{}",
        b'{"weights": 3}',
        b'{"weights": "../../etc/passwd"}',
        b'{"weights": "KEY", "model": "os:system"}',
        b'{"weights": "KEY", "out": "/tmp/x"}',
        b'{"weights": "KEY", "samples": 0}',
        b'{"weights": "KEY", "budget": "--out=x"}',
        b'{"weights": "KEY", "what_if": ["int8,dp"]}',
        b'{"weights": "KEY", "initial": "zero"}',
        b'{"weights": "KEY", "scaling": "/etc/passwd"}',
        b'{"weights": "KEY", "label": "' + b"x" * 201 + b'"}',
        b'{"weights": "KEY", "image_shape": "' + b"9" * 100 + b'"}',
    ],
)
def test_a_form_asks_for_what_the_page_offers_and_nothing_else(ask: Any, form: bytes) -> None:
    """Neither code nor a path of this machine can be named."""
    key = ask.drop("net.pt", b"x").json()["key"]
    headers = {"Host": "127.0.0.1:5005", "Origin": "http://127.0.0.1:5005", "Content-Type": "application/json"}
    found = ask("POST", "audits", headers=headers, content=form.replace(b"KEY", key.encode()))
    assert found.status_code in (404, 422)
    assert found.json()["problem"].startswith("expected")
    assert ask.desk.audits.known == {}


@pytest.mark.parametrize("key", ["%2e%2e", "%2e%2e%2fprivate", "a%2fb", "a%00b", ".hidden", "linked", "ü", "x" * 200])
def test_an_address_opens_audits_and_nothing_else(ask: Any, tmp_path: Path, key: str) -> None:
    out, elsewhere = ask.settings.out, tmp_path / "elsewhere"
    for folder in (out / ".hidden", elsewhere):
        folder.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "private", out / ".hidden", elsewhere):
        (folder / "report.html").write_text("a secret")
        (folder / "summary.json").write_text('{"sentence": "a secret"}')
    (out / "linked").symlink_to(elsewhere)
    for path in (f"audits/{key}", f"audits/{key}/report", f"compare?audit={key}&audit={key}x"):
        found = ask("GET", path)
        assert found.status_code in (403, 404), path
        assert "secret" not in found.text
    assert "a secret" not in ask("GET", "").text


def test_damaged_and_hostile_summaries_do_not_reach_the_page(ask: Any) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    texts = {
        "a": "{",
        "b": "[]",
        "c": json.dumps({"verdict": hostile, "method": hostile, "what_if": [{"name": hostile}]}),
    }
    for name, text in texts.items():
        (ask.settings.out / name).mkdir(parents=True)
        (ask.settings.out / name / "summary.json").write_text(text)
    assert [audit.key for audit in earlier.list_audits(ask.settings.out)] == ["c"]
    for path in ("", "audits/c", "compare?audit=c&audit=c2"):
        assert hostile not in ask("GET", path).text
    assert "&lt;img" in ask("GET", "").text


def test_the_gauge_answers_and_refuses_as_the_command_does(ask: Any) -> None:
    found = ask("GET", "gauge?p=6000&d=100&n=20").json()
    assert (found["zone"], found["ratio"]) == ("data", 3.0)
    assert found["sentences"][0].startswith("A last layer of p = 6,000 parameters")
    assert 'aria-label="Gauge on a log scale: p = 6,000, thresholds n = 20 and d n = 2,000' in found["drawing"]
    assert [ask("GET", f"gauge?p={p}&d=1").status_code for p in ("", "0", "-1", "1e3", "٣", "9" * 30)] == [422] * 6


def test_the_form_offers_what_there_is_and_what_others_register(ask: Any) -> None:
    swish = register_activation(Activation.of("swish", lambda z: z * z.sigmoid()))
    try:
        page = ask("GET", "").text
    finally:
        ACTIVATIONS._known.pop(swish.name)
    assert [f"<option>{name}</option>" in page for name in ("relu", "swish", "linear")] == [True, True, False]
    check_what_if(tuple(OFFERED), has_labels=True)
    assert list(OFFERED) == ["int8", "prune50", "noise0.1", "dp"]
    assert all(f'value="{name}"' in page for name in OFFERED)


def test_a_scan_is_shown_where_there_is_a_scanner_and_nothing_where_there_is_none(
    ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scanned:
        def to_json(self) -> dict[str, Any]:
            found = {"what": "rows", "where": "a.pt", "certainty": "certain", "gives_away": "all", "remedy": "remove"}
            return {"sentence": "Is training data in here? Yes.", "findings": [found] * 25}

    class Scanner:
        @staticmethod
        def scan(path: Path, numbers: bool) -> Scanned:
            return Scanned()

    monkeypatch.setattr(findings, "can_scan", lambda: False)
    assert ask.drop("a.pt", b"x").json()["scan"] is None
    monkeypatch.setattr(findings, "can_scan", lambda: True)
    monkeypatch.setattr(findings, "import_module", lambda name: Scanner)
    scan = ask.drop("a.pt", b"x").json()["scan"]
    assert scan["sentence"].endswith("Yes.")
    assert (len(scan["findings"]), scan["more"]) == (20, 5)
