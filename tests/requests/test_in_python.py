"""Whatever a command can be asked for can be asked for in Python."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import exhume
from exhume.errors import UsageError
from exhume.requests import audit as audit_options
from exhume.requests.attack import AttackCommand, AttackOptions
from exhume.requests.audit import AuditOptions, AuditRequest
from exhume.requests.rank import RankRequest
from exhume.requests.request import Request
from exhume.requests.scan import ScanRequest

AUDITS = (exhume.audit, exhume.audit_features)
ELSEWHERE: dict[type[Request], dict[str, object]] = {
    AttackCommand: {
        "run": exhume.load_observation,
        "model": exhume.load_observation,
        "known": exhume.Observation,
        "recipe_file": exhume.observe,
    },
    AuditRequest: {
        "weights": exhume.audit,
        "model": exhume.audit,
        "features": exhume.audit_features,
        "image_shape": exhume.audit,
        "recipe_file": exhume.audit,
        "row_norm": exhume.audit,
        "norm": exhume.audit,
        "fail_on": exhume.Audit.verdict,
        "reveal": exhume.Audit.save,
        "out": exhume.Audit.save,
    },
    ScanRequest: {"fail_on": exhume.Scan.answer},
    RankRequest: {
        "run": exhume.rank,
        "label": exhume.rank,
        "layer": exhume.rank,
        "hidden": exhume.reconstruct,
        "mean": exhume.rank,
        "members": exhume.Ranking,
        "std": exhume.rank,
        "out": exhume.Ranking,
        "model": exhume.load_observation,
        "seed": exhume.reconstruct,
    },
}
"""Fields that Python has in another form: files are objects there, and what is written is a result."""


@pytest.mark.parametrize(
    ("model", "functions", "options"),
    [
        (AttackCommand, (exhume.reconstruct,), AttackOptions),
        (AuditRequest, AUDITS, AuditOptions),
        (ScanRequest, (exhume.scan,), Request),
        (RankRequest, (exhume.rank,), Request),
    ],
)
def test_every_option_of_a_command_has_its_place_in_python(
    model: type[Request], functions: tuple[Callable[..., Any], ...], options: type[Request]
) -> None:
    """As a parameter of the same name, as one of the options that the function takes from the request, or elsewhere."""
    taken = [inspect.signature(function).parameters for function in functions]
    by_name = {name for parameters in taken for name in parameters}
    if any(kind.kind is inspect.Parameter.VAR_KEYWORD for parameters in taken for kind in parameters.values()):
        by_name |= set(options.model_fields)
    fields = set(model.model_fields)
    assert fields - by_name - set(ELSEWHERE[model]) == set()
    assert set(ELSEWHERE[model]) <= fields


@pytest.fixture
def small() -> tuple[nn.Module, dict[str, torch.Tensor], torch.Tensor]:
    """A network that was drawn with the seed 7, and its head fitted to three rows."""
    torch.manual_seed(7)
    model = factory()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = torch.randn(3, 10, generator=torch.Generator().manual_seed(1))
    rows *= 10**0.5 / rows.norm(dim=1, keepdim=True)
    with torch.no_grad():
        model[2].weight += torch.linalg.pinv(model[:2](rows)) @ (torch.tensor([1.0, -1.0, 1.0]) - model(rows)[:, 0])
    return model, before, rows


def factory() -> Any:
    model = nn.Sequential(nn.Linear(10, 200, bias=False), nn.ReLU(), nn.Linear(200, 1, bias=False))
    model[0].requires_grad_(False)
    return model


def test_a_start_is_drawn_again_searched_for_or_an_older_version(small: Any) -> None:
    model, before, rows = small
    known = exhume.audit(model, initial=before, truth=rows, budget="1m")
    drawn = exhume.audit(model, initial_seed=7, factory=factory, truth=rows, budget=60)
    searched = exhume.audit(model, initial_seed_search=9, factory=factory, truth=rows, budget_seconds=60)
    older = exhume.audit(model, against=before, truth=rows, budget="1m")
    for done in (known, drawn, searched, older):
        assert done.summary["recovered"] == 3
    assert searched.subject.notes[0].startswith("Your seed is 7:")
    assert older.subject.notes[0].startswith("Two versions: the older version was taken")
    with pytest.raises(UsageError, match="expected factory with initial_seed"):
        exhume.audit(model, initial_seed=7)
    with pytest.raises(UsageError, match="found initial and against"):
        exhume.audit(model, initial=before, against=before)


def test_records_are_named_as_on_the_command_line(small: Any, tmp_path: Path) -> None:
    model, before, rows = small
    table = tmp_path / "rows.csv"
    scaled = rows * 4 + 2
    lines = [",".join([*(f"{float(value):.9g}" for value in row), str(at % 2)]) for at, row in enumerate(scaled)]
    table.write_text("\n".join([",".join([*(f"x{at}" for at in range(10)), "answer"]), *lines]) + "\n")
    scaling = tmp_path / "scaling.json"
    scaling.write_text("{" + ", ".join(f'"x{at}": [2, 4]' for at in range(10)) + "}")
    done = exhume.audit(model, initial=before, truth=table, label="answer", scaling=str(scaling), budget="1m")
    assert done.summary["recovered"] == 3
    assert done.subject.truth is not None
    assert done.subject.truth.labels.tolist() == [0, 1, 0]
    save_file({"inputs": -rows}, tmp_path / "others.safetensors")
    held = exhume.audit(model, initial=before, truth=rows, control=tmp_path / "others.safetensors", budget="1m")
    assert held.subject.control is not None
    assert torch.equal(held.subject.control, -rows)
    with pytest.raises(UsageError, match="expected --samples, the number of training records, with images of faces"):
        exhume.audit(model, initial=before, truth="faces")


def test_an_audit_from_python_goes_on_from_its_folder(small: Any, tmp_path: Path) -> None:
    model, before, rows = small
    asked = {"initial": before, "truth": rows, "progress": tmp_path / "p", "budget": "1m"}
    first = exhume.audit(model, **asked)
    again = exhume.audit(model, **asked)
    assert first.summary["recovered"] == again.summary["recovered"] == 3
    with pytest.raises(UsageError, match="the same audit"):
        exhume.audit(model, **asked, seed=1)
    with pytest.raises(UsageError, match="the same audit"):
        exhume.audit(model, **{**asked, "initial": {**before, "0.weight": before["0.weight"] + 1}})


def test_two_versions_of_a_model_over_known_features() -> None:
    stream = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 6, generator=stream) / 6**0.5
    data = torch.randn(40, 6, generator=stream)
    labels = torch.randn(40, generator=stream)

    def fit(count: int) -> torch.Tensor:
        features = (data[:count] @ rows.T).clamp_min(0).double()
        gram = features.T @ features + 0.1 * torch.eye(400).double()
        return torch.linalg.solve(gram, features.T @ labels[:count].double()).float()

    public = torch.randn(500, 6, generator=stream)
    done = exhume.audit_features(rows, fit(39), "relu", against=fit(40), public=public, budget=20)
    assert done.subject.notes[0].startswith("Two versions of a ridge model.")
    with pytest.raises(UsageError, match="expected against and public together"):
        exhume.audit_features(rows, fit(39), "relu", against=fit(40))


def test_a_scan_in_python_is_that_of_the_command(tmp_path: Path) -> None:
    save_file({"inputs": torch.randn(5, 3)}, tmp_path / "a.safetensors")
    done = exhume.scan(tmp_path, rows=tmp_path / "rows.csv", sarif=tmp_path / "found.sarif")
    assert done.answer.value in repr(done)
    assert (tmp_path / "rows.csv").exists()
    assert (tmp_path / "found.sarif").exists()


NEW_OPTION = '    pauses: Annotated[int, Field(ge=0), Option("Rests between attacks.")] = 0\n'
PLACE = "    seed: Seed = 0\n"
USED = """
import contextlib, importlib.util, io, pathlib, sys
spec = importlib.util.spec_from_file_location("exhume.requests.audit", {file!r})
sys.modules["exhume.requests.audit"] = changed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(changed)

import torch, exhume
from exhume.auditing import of_model
from exhume.cli import app
from exhume.requests.command_line import shown_line

seen = []
def stand_in(question, settings, *_):
    seen.append(settings.options.pauses)
    raise exhume.errors.UsageError("seen enough")

of_model.run_audit = stand_in
with contextlib.suppress(exhume.errors.UsageError):
    exhume.audit_features(torch.randn(60, 6), torch.randn(60), "relu", pauses=3)
assert seen == [3], seen

request = changed.AuditRequest(weights=pathlib.Path("w"), out=pathlib.Path("o"), pauses=3)
assert shown_line(request) == "exhume audit w --pauses 3 --out o", shown_line(request)
assert changed.AuditRequest.from_config(request.to_config()) == request
sys.argv = ["exhume", "audit", "--help"]
with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
    app.main()
assert "--pauses INTEGER" in printed.getvalue(), printed.getvalue()
"""


def test_a_new_option_of_audits_is_one_line_in_one_file(tmp_path: Path) -> None:
    """The command line, its help, the printed command and Python follow."""
    text = Path(audit_options.__file__).read_text()
    assert text.count(PLACE) == 1
    changed = tmp_path / "audit.py"
    changed.write_text(text.replace(PLACE, PLACE + NEW_OPTION))
    line = [sys.executable, "-c", USED.format(file=str(changed))]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
