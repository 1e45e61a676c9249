"""`exhume scan` as a user meets it."""

import csv
import json
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from published_files import fitted, iris, save_skops

Command = Callable[..., subprocess.CompletedProcess[str]]
KEYS = {"what", "where", "certainty", "gives_away", "remedy", "attack"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "published").mkdir()
    save_skops(fitted(SVC()), tmp_path / "published" / "svc.skops")
    save_skops(fitted(StandardScaler()), tmp_path / "published" / "scaler.skops")
    return tmp_path / "published"


def test_the_first_sentence_answers_and_the_worst_comes_first(exhume: Command, folder: Path) -> None:
    shown = exhume("scan", folder)
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    count = len(fitted(SVC()).support_)
    assert lines[0] == f"Is training data in here? Yes: {count} support vectors of 4 numbers (SVC)."
    kinds = [line.split()[0] for line in lines if line.startswith(("records", "values", "lead"))]
    assert kinds == ["records", "lead"]


def test_json_has_the_findings_with_their_keys(exhume: Command, folder: Path) -> None:
    shown = exhume("scan", folder, "--json")
    told = json.loads(shown.stdout)
    assert len(shown.stdout.splitlines()) == 1
    assert told["answer"] == "yes"
    assert all(set(finding) >= KEYS for finding in told["findings"])
    first = told["findings"][0]
    assert (first["rows"], first["columns"]) == (len(first["row_numbers"]), 4)


def test_fail_on_orders_the_answers(exhume: Command, folder: Path) -> None:
    def code(*arguments: object) -> int:
        return exhume("scan", *arguments).returncode

    assert [code(folder, "--fail-on", limit) for limit in ("data", "leads", "unread")] == [1, 1, 1]
    scaler = folder / "scaler.skops"
    assert [code(scaler, "--fail-on", limit) for limit in ("data", "leads", "unread")] == [0, 1, 1]
    plain = save_skops(fitted(LogisticRegression(max_iter=1000)), folder / "plain.skops")
    assert [code(plain, "--fail-on", limit) for limit in ("data", "leads", "unread")] == [0, 0, 0]
    broken = folder / "broken.skops"
    broken.write_bytes(b"PK\x03\x04")
    assert [code(broken, "--fail-on", limit) for limit in ("data", "leads", "unread")] == [0, 0, 1]
    assert code(folder, "--fail-on", "nothing") == 2


def test_every_stored_row_is_written_for_the_owner_alone(exhume: Command, tmp_path: Path) -> None:
    path = save_skops(fitted(KNeighborsClassifier(3)), tmp_path / "knn.skops")
    shown = exhume("scan", path, "--rows", tmp_path / "rows.csv")
    assert "wrote 150 stored records" in shown.stdout
    with (tmp_path / "rows.csv").open() as file:
        table = list(csv.reader(file))
    assert table[0] == ["where", "place", "training_row", "label", "x0", "x1", "x2", "x3"]
    np.testing.assert_array_equal(np.array([row[4:] for row in table[1:]], float), iris()[0])
    assert [int(row[2]) for row in table[1:]] == list(range(150))
    assert stat.S_IMODE((tmp_path / "rows.csv").stat().st_mode) == 0o600


def test_sarif_has_a_rule_and_a_place_for_each_finding(exhume: Command, folder: Path, tmp_path: Path) -> None:
    exhume("scan", folder, "--sarif", tmp_path / "a.sarif")
    (run,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("support-vectors", "error"),
        ("column-statistics", "note"),
    ]
    assert {result["ruleId"] for result in run["results"]} == rules
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]]
    assert places == ["svc.skops", "scaler.skops"]


def test_what_is_not_there_is_one_line(exhume: Command, tmp_path: Path) -> None:
    shown = exhume("scan", tmp_path / "none")
    assert shown.returncode == 1
    assert len(shown.stderr.splitlines()) == 1
