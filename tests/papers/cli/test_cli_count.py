"""`exhume count`."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(exhume: Command, tmp_path: Path) -> Path:
    data = ("--data", "faces", "--side", 5, "--samples", 2)
    assert exhume("train", "rf", *data, "--ratio", 8, "--out", tmp_path / "a").returncode == 0
    return tmp_path / "a"


def test_each_number_is_told_and_the_estimates_are_kept_with_a_table_and_a_figure(exhume: Command, run: Path) -> None:
    done = exhume("count", run, "--from", 1, "--to", 3, "--by", 2, "--iterations", 40, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["count_by_certificate"] == 2
    assert summary["count_outcome"] == "recovered"
    assert {"count_by_duplicates", "count_by_needed"} <= summary.keys()
    told = [line for line in done.stderr.splitlines() if line.startswith("told ")]
    assert [line.split(":")[0] for line in told] == ["told 1", "told 3"]
    assert "certificate: n = 2 (recovered)" in done.stderr
    assert (run / "count.csv").read_text().count("\n") == 3
    assert (run / "count.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--from", 5, "--to", 4), "expected --to of at least --from 5, found 4"),
        (("--cosine", 2, "--from", 1, "--to", 1, "--iterations", 1), "expected a cosine between 0 and 1, found 2"),
        (("--step", -1), "expected a positive step"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    exhume: Command, run: Path, flags: tuple[object, ...], complaint: str
) -> None:
    refused = exhume("count", run, *flags)
    assert refused.returncode == 2
    assert complaint in refused.stderr


def test_a_network_of_ones_own_is_counted_where_it_has_the_form(
    exhume: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_counted_nets.py").write_text(
        "from torch import nn\n\n"
        "def wide():\n    return nn.Sequential(nn.Linear(6, 240), nn.ReLU(), nn.Linear(240, 1))\n\n"
        "def deep():\n    return nn.Sequential("
        "nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 90), nn.Tanh(), nn.Linear(90, 1))\n"
    )
    monkeypatch.chdir(tmp_path)
    probe = ("--data", "sphere", "--dim", 6, "--samples", 2, "--freeze", "--method", "closed-form")
    for name in ("wide", "deep"):
        assert exhume("train", f"users_counted_nets:{name}", *probe, "--out", name).returncode == 0
    tried = ("--from", 2, "--to", 2, "--iterations", 5)
    done = exhume("count", "wide", *tried, "--model", "users_counted_nets:wide")
    assert done.returncode == 0, done.stderr
    assert "certificate: n = 2 (recovered)" in done.stdout
    refused = exhume("count", "deep", *tried, "--model", "users_counted_nets:deep")
    assert "expected features of the form phi(Vx + b)" in refused.stderr
