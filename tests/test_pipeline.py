"""The action, the hooks, the container and the example workflow: read as YAML, and their lines run as scripts."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml
from torch import nn

from exhume.cli.app import app
from exhume.formats.reading import SUFFIXES

ROOT = Path(__file__).parents[1]
MODEL = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(30, 400), nn.ReLU(), nn.Linear(400, 2))
"""


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model that gives its ten samples away once its start is known."""
    folder = tmp_path_factory.mktemp("release")
    (folder / "pipeline_models.py").write_text(MODEL, encoding="utf-8")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 400), nn.ReLU(), nn.Linear(400, 2))
    torch.save(model.state_dict(), folder / "before.pt")
    inputs, labels = torch.randn(10, 30), torch.arange(10) % 2
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    torch.save(model.state_dict(), folder / "after.pt")
    return folder


def run(line: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "GITHUB_OUTPUT": str(folder / "output"), "OMP_NUM_THREADS": "1"} | more
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=200)


def run_step(name: str, folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Runs a step of the action as GitHub does: inputs become environment, the script is given to bash -e."""
    action = read("action.yml")
    inputs = {key: value["default"] for key, value in action["inputs"].items()} | given
    step = next(step for step in action["runs"]["steps"] if step["name"] == name)
    env = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], value)
        for key, value in step["env"].items()
    }
    return run(["bash", "-e", "-o", "pipefail", "-c", step["run"]], folder, **env)


def test_the_action_fails_at_a_model_that_gives_its_data_away_and_keeps_the_page(release: Path) -> None:
    known = "--model pipeline_models:net --initial before.pt"
    done = run_step("Audit", release, audit="after.pt", out="leaks", **{"audit-options": known})
    assert done.returncode == 1, done.stderr
    assert "failed on the verdict recovered (--fail-on partly-recovered)" in done.stderr
    assert (release / "leaks/report.html").is_file()
    assert (release / "output").read_text(encoding="utf-8").splitlines()[-1] == "report=leaks/report.html"


def test_the_action_lets_a_model_pass_that_is_not_shown_to_leak(release: Path) -> None:
    unknown = "--model pipeline_models:net --budget 8s"
    done = run_step("Audit", release, audit="after.pt", out="passes", **{"audit-options": unknown})
    assert (done.returncode, "Recovered:" in done.stdout) == (0, False), done.stderr


def test_options_of_the_action_are_words_and_no_commands(release: Path) -> None:
    options = {"audit-options": "$(touch hacked) ; touch hacked"}
    done = run_step("Audit", release, audit="after.pt", out="none", **options)
    assert done.returncode == 2
    assert not (release / "hacked").exists()


def test_scan_fails_by_the_action_and_by_the_hook_where_training_data_is_found(release: Path) -> None:
    if "scan" not in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        pytest.skip("this version of exhume has no scan")
    held = {"model": nn.Linear(30, 400).state_dict(), "X_train": torch.randn(50, 30)}
    torch.save(held, release / "holds.pt")
    hook = next(hook for hook in read(".pre-commit-hooks.yaml") if hook["id"] == "exhume-scan")
    for names, code in ((["before.pt"], 0), (["holds.pt"], 1), (["before.pt", "holds.pt"], 1)):
        assert run_step("Scan", release, scan=names[-1]).returncode == code, names
        assert run([*shlex.split(hook["entry"]), *names], release).returncode == code, names
    assert all(re.search(hook["files"], name) for name in ("before.pt", "a/model.safetensors", "tree.joblib"))


def test_a_file_that_an_extra_would_read_passes_neither_the_hook_nor_the_action(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.svm import SVC

    from published_files import fitted, save_onnx

    save_onnx(fitted(SVC()), release / "svc.onnx")
    hook = next(hook for hook in read(".pre-commit-hooks.yaml") if hook["id"] == "exhume-scan")
    line = [*shlex.split(hook["entry"]), "svc.onnx"]
    assert "support vectors" in run(line, release).stdout

    (tmp_path / "onnx.py").write_text("raise ImportError('not installed')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    for done in (run(line, release), run_step("Scan", release, scan="svc.onnx")):
        assert done.returncode == 1
        (said,) = done.stderr.splitlines()
        assert said == (
            "failed: expected to read svc.onnx, found an extra not installed; pip install 'exhume[onnx]' "
            "(--fail-on data)"
        )
    assert run(["exhume", "scan", "svc.onnx"], release).returncode == 0, "nobody asked for a gate"


def test_the_hook_and_the_action_install_what_reads_every_file_that_they_look_at() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    hook = next(hook for hook in read(".pre-commit-hooks.yaml") if hook["id"] == "exhume-scan")
    assert hook["additional_dependencies"] == [*extras["onnx"], *extras["keras"]]
    assert [name for name in SUFFIXES if not re.search(hook["files"], f"a/model{name}")] == []
    assert read("action.yml")["inputs"]["version"]["default"] == "exhume[formats]"
    assert extras["formats"] == ["exhume[onnx,keras,tables]"]


def test_the_hook_attacks_before_a_push(release: Path) -> None:
    hook = next(hook for hook in read(".pre-commit-hooks.yaml") if hook["id"] == "exhume-audit")
    assert hook["pass_filenames"] is False
    line = [*shlex.split(hook["entry"]), "after.pt", "--model", "pipeline_models:net", "--initial", "before.pt"]
    assert run(line, release).returncode == 1
    assert (release / ".exhume-audit/report.html").is_file()


def test_the_example_workflow_asks_the_action_for_what_it_has() -> None:
    action, workflow = read("action.yml"), read("examples/workflows/release.yml")
    steps = workflow["jobs"]["exhume"]["steps"]
    used = next(step for step in steps if step.get("uses", "").startswith("exhume/"))
    assert set(used["with"]) <= set(action["inputs"])
    outputs = re.findall(rf"steps\.{used['id']}\.outputs\.(\w+)", str(steps))
    assert outputs
    assert set(outputs) <= set(action["outputs"])
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input in a script would be run as a part of it"


def test_the_container_copies_files_that_there_are_and_runs_exhume() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.*)$", text, flags=re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    assert 'ENTRYPOINT ["exhume"]' in text
