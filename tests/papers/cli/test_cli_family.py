"""The family of attacks from the command line: informed, on all layers, pooled, and side by side."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exhume.experiments.known_samples import keep_known
from exhume.experiments.run import RunFolder

Command = Callable[..., subprocess.CompletedProcess[str]]
SPHERE = ("--data", "sphere", "--dim", 12, "--samples", 4)


def last(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_an_informed_adversary_finds_the_missing_sample(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ridge = ("--params", 120, "--ridge", 0.05, "--dtype", "float64")
    assert exhume("train", "rf", *SPHERE, *ridge, "--out", run).returncode == 0
    missing = exhume("attack", run, "--method", "informed")
    assert missing.returncode == 1
    assert "exhume known" in missing.stderr
    assert exhume("known", run, "--missing", 2).returncode == 0
    assert keep_known(RunFolder(run), None, 12).penalty == 0.05
    found = last(exhume("attack", run, "--method", "informed", "--dtype", "float64", "--json"))
    assert (found["outcome"], found["samples_found"], found["known_samples"]) == ("recovered", 1, 3)
    scores = last(exhume("evaluate", run, "--json"))
    assert scores["error"] < 1e-6
    assert scores["recognised"] == 1
    elsewhere = tmp_path / "known.safetensors"
    assert exhume("known", run, "--missing", 0, "--out", elsewhere).returncode == 0
    assert last(exhume("attack", run, "--method", "informed", "--known", elsewhere, "--json"))["outcome"] == "recovered"
    assert last(exhume("evaluate", run, "--json"))["error"] < 1e-3, "the other sample is the missing one now"


def test_a_generalised_linear_model_is_trained_and_inverted(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    glm = ("--labels", "sign", "--loss", "logistic", "--penalty", 0.05, "--dtype", "float64")
    assert last(exhume("train", "glm", *SPHERE, *glm, "--out", run, "--json"))["victim"] == "glm"
    assert exhume("known", run).returncode == 0
    assert exhume("attack", run, "--method", "informed").returncode == 0
    assert last(exhume("evaluate", run, "--json"))["error"] < 1e-6


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--method", "ntk"), "--knows-first-layer"),
        (("--method", "kkt", "--exact"), "expected --exact with --method split-newton, found kkt"),
        (("--method", "ntk", "--known", "x"), "--method informed"),
    ],
)
def test_what_an_attack_lacks_is_said_in_one_line(
    exhume: Command, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    run = tmp_path / "run"
    assert exhume("train", "two-layer", *SPHERE, "--width", 40, "--steps", 20, "--out", run).returncode == 0
    done = exhume("attack", run, *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_attacks_are_compared_on_one_observation_and_the_run_stays_as_it_was(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    network = ("--width", 60, "--steps", 200, "--knows-first-layer")
    assert exhume("train", "two-layer", *SPHERE, *network, "--out", run).returncode == 0
    before = (run / "summary.json").read_text()
    done = exhume("compare", run, "--attacks", "heavy-ball,ntk,informed,module-newton", "--budget", "1s", "--json")
    rows = {row["name"]: row for row in last(done)["attacks"]}
    assert list(rows) == ["heavy-ball", "module-newton", "ntk", "informed"]
    assert rows["ntk"]["reason"] is None
    assert rows["ntk"]["held_out_loss"] is not None  # how good it is after a second depends on the machine
    assert rows["ntk"]["knowledge"] == "all layers before and after training"
    assert "exhume known" in rows["informed"]["reason"]
    assert rows["module-newton"]["reason"] is not None
    assert json.loads((run / "compare.json").read_text())["attacks"] == list(rows.values())
    assert (run / "compare.png").exists()
    assert (run / "summary.json").read_text() == before
    assert exhume("compare", run, "--attacks", "nonsense").returncode == 2


def test_the_prior_is_compared_where_there_are_images_and_modules_as_what_they_are(
    exhume: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison makes each attack as `exhume attack` would."""
    (tmp_path / "users_compared_nets.py").write_text(
        "from torch import nn\n\ndef wide():\n    return nn.Sequential(nn.Linear(6, 90), nn.GELU(), nn.Linear(90, 1))\n"
    )
    monkeypatch.chdir(tmp_path)
    spec = "users_compared_nets:wide"
    probe = ("--data", "sphere", "--dim", 6, "--samples", 2, "--freeze", "--method", "closed-form", "--out", "a")
    assert exhume("train", spec, *probe).returncode == 0
    named = ("--attacks", "split-newton,image-prior", "--budget", "60s", "--json")  # they end by themselves, sooner
    rows = {row["name"]: row for row in last(exhume("compare", "a", *named, "--model", spec))["attacks"]}
    assert rows["split-newton"]["reason"] is None
    assert "image" in rows["image-prior"]["reason"]
    faces = ("--data", "faces", "--side", 5, "--samples", 3, "--ratio", 3, "--out", "b")
    assert exhume("train", "rf", *faces).returncode == 0
    rows = {row["name"]: row for row in last(exhume("compare", "b", *named))["attacks"]}
    assert rows["image-prior"]["reason"] is None
    assert rows["image-prior"]["error"] < 1e-4


@pytest.mark.slow
def test_a_pool_of_seeds_keeps_what_they_agree_on(exhume: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    network = ("--width", 60, "--steps", 200, "--knows-first-layer")
    assert exhume("train", "two-layer", *SPHERE, *network, "--out", run).returncode == 0
    found = last(exhume("attack", run, "--method", "ntk", "--iterations", 60, "--pool", 2, "--seed", 7, "--json"))
    assert found["pooled_runs"] == 2
    assert found["judged_seed"] in (7, 8), "the seeds follow the one that was asked for"
    assert found["found_by_runs"][0] == 2
    assert exhume("evaluate", run).returncode == 0
