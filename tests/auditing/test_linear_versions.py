"""Two versions of a linear model: the record between them is computed from the change."""

import csv
import json
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from exhume.auditing.linear_versions import LinearAudit, audit_linear
from exhume.errors import ExhumeError, UsageError
from exhume.observing.linear_versions import between_linear_versions
from exhume.requests.audit import AuditRequest
from exhume.verdicts import Verdict
from published_files import save_onnx, save_skops

Command = Callable[..., subprocess.CompletedProcess[str]]
N, GONE = 300, 7


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    raw, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(raw))
    return raw[order] / 16, labels[order]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x, _ = digits()
    np.save("public.npy", x[600:1500])
    np.save("deleted.npy", x[GONE : GONE + 1])
    np.save("others.npy", x[1500:1503])


def versions(
    model: Any, targets: Callable[[np.ndarray], np.ndarray] = lambda y: y, gone: tuple[int, ...] = (GONE,)
) -> tuple[Any, Any]:
    """Newer and older."""
    from copy import deepcopy

    x, y = digits()
    kept = np.delete(np.arange(N), gone)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = deepcopy(model).fit(x[:N], targets(y[:N]))
        return deepcopy(model).fit(x[kept], targets(y[kept])), old


def found_in(new: Any, old: Any, save: Callable[..., Path] = save_skops, **more: Any) -> LinearAudit:
    suffix = "skops" if save is save_skops else "onnx"
    paths = [save(model, Path(f"{name}.{suffix}")) for name, model in (("new", new), ("old", old))]
    told: dict[str, Any] = {"truth": "deleted.npy", "public": "public.npy", "out": Path("o"), "budget": 60.0} | more
    done = audit_linear(AuditRequest(weights=paths[0], against=paths[1], **told))
    assert done is not None
    return done


@pytest.mark.parametrize(
    ("model", "targets", "cosine", "dimensions"),
    [
        (RidgeClassifier(alpha=100), None, 0.99, 1),
        (RidgeClassifier(alpha=10), None, 0.96, 1),
        (Ridge(alpha=100), float, 0.99, None),
        (LinearRegression(), float, 0.9, None),
        (LogisticRegression(C=0.1, tol=1e-8, max_iter=2000), None, 0.99, None),
        (LogisticRegression(C=1, tol=1e-8, max_iter=2000), None, 0.97, None),
        (LogisticRegression(C=1, tol=1e-8, max_iter=2000), lambda y: y % 2, 0.95, None),
        (LinearSVC(C=0.1, tol=1e-8, max_iter=20000), None, 0.9, None),
    ],
)
def test_the_deleted_record_is_in_the_change(model: Any, targets: Any, cosine: float, dimensions: int | None) -> None:
    take = (lambda y: y.astype(float)) if targets is float else targets or (lambda y: y)
    done = found_in(*versions(model, take), samples=N)
    assert done.cosines is not None
    assert done.cosines[0] > cosine
    assert done.change.whole
    assert done.summary["rank"] == dimensions
    assert done.alike is not None
    assert done.alike < done.cosines[0] or cosine <= 0.9


def test_a_strong_penalty_gives_the_record_itself_and_another_record_is_none_of_it() -> None:
    new, old = versions(RidgeClassifier(alpha=100))
    done = found_in(new, old, samples=N)
    assert (done.verdict, done.recovered) == (Verdict.RECOVERED, 1)
    assert done.summary["worst_relative_error"] < 0.1
    other = found_in(new, old, samples=N, truth="others.npy")
    assert (other.verdict, other.recovered, other.directions) == (Verdict.INCONCLUSIVE, 0, 0)
    nobody = found_in(new, old, samples=N, truth=None)
    assert nobody.verdict is Verdict.INCONCLUSIVE
    assert "nothing confirms it" in nobody.sentence
    known = found_in(*versions(RidgeClassifier(alpha=10))).change.penalty
    assert known == pytest.approx(10 / N, rel=1)  # by likelihood alone


def test_as_many_dimensions_as_records_and_no_record_by_itself() -> None:
    done = found_in(*versions(RidgeClassifier(alpha=10), gone=(3, 5, GONE)), samples=N)
    assert done.summary["rank"] == 3
    assert "3 of 10 possible dimensions" in done.notes[0]
    assert done.verdict is Verdict.INCONCLUSIVE
    assert done.cosines is not None
    assert done.cosines[0] > 0.97  # inside of what they span


def test_the_second_derivatives_of_the_training_records_give_the_record_to_rounding() -> None:
    """The naive twin: with H itself the change of a ridge model is the record, exactly."""
    new, old = versions(RidgeClassifier(alpha=1))
    x, _ = digits()
    heads = [(torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)) for model in (new, old)]
    done = between_linear_versions(heads[0], heads[1], torch.from_numpy(x[:N]), "square", 1 / N)
    np.testing.assert_allclose(done.rows[0], x[GONE], atol=1e-7)
    plain = RidgeClassifier(alpha=1, fit_intercept=False)
    pair = [(torch.from_numpy(model.coef_), None) for model in versions(plain)]
    direction = between_linear_versions(pair[0], pair[1], torch.from_numpy(x[:N]), "square", 1 / N)
    assert not direction.whole
    unit = x[GONE] / np.linalg.norm(x[GONE])
    assert abs(direction.rows[0].numpy() @ unit) == pytest.approx(1, abs=1e-9)


def test_onnx_tensors_and_a_scaler_in_front() -> None:
    new, old = versions(LogisticRegression(C=0.1, tol=1e-8, max_iter=2000))
    from_onnx = found_in(new, old, lambda model, path: save_onnx(model, path, columns=64))
    assert from_onnx.cosines is not None
    assert from_onnx.cosines[0] > 0.97
    scaled = found_in(*versions(make_pipeline(StandardScaler(), RidgeClassifier(alpha=100))), samples=N)
    assert scaled.cosines is not None
    assert scaled.cosines[0] > 0.9
    assert any("scale their inputs first" in note for note in scaled.notes)
    ridge = versions(RidgeClassifier(alpha=100, fit_intercept=False))
    for name, model in zip(("new", "old"), ridge, strict=True):
        save_file({"weight": torch.from_numpy(np.ascontiguousarray(model.coef_))}, f"{name}.safetensors")
    asked = {"weights": Path("new.safetensors"), "against": Path("old.safetensors"), "out": Path("o")}
    done = audit_linear(AuditRequest(**asked, public="public.npy", truth="deleted.npy"))  # type: ignore[arg-type]
    assert done is not None
    assert done.summary["directions_only"]
    assert done.recovered == 0  # a direction is no record
    assert done.cosines is not None
    assert done.cosines[0] > 0.95
    assert any("the square is assumed" in note for note in done.notes)


def test_the_command_writes_a_page_that_hides_the_cells(exhume: Command) -> None:
    for model, name in zip(versions(RidgeClassifier(alpha=100)), ("new", "old"), strict=True):
        save_skops(model, Path(f"{name}.skops"))
    asked = ("new.skops", "--against", "old.skops", "--public", "public.npy", "--truth", "deleted.npy")
    for out, reveal in (("hidden", ()), ("shown", ("--reveal",))):
        done = exhume("audit", *asked, "--samples", str(N), "--json", "--out", out, *reveal)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["verdict"] == "recovered"
    with Path("shown/recovered.csv").open() as file:
        _, row = csv.reader(file)
    found = np.array(row, float)
    assert np.linalg.norm(found - np.load("deleted.npy")[0]) < 0.1 * np.linalg.norm(np.load("deleted.npy"))
    cell = max(row, key=len)
    assert f"<td>{cell}</td>" in Path("shown/report.html").read_text()
    assert sorted(path.name for path in Path("hidden").iterdir()) == ["report.html", "report.json", "summary.json"]
    assert not any(cell in path.read_text() for path in Path("hidden").iterdir())
    failed = exhume("audit", *asked, "--samples", str(N), "--fail-on", "recovered", "--out", "again")
    assert failed.returncode == 1


def test_what_is_missing_is_one_line() -> None:
    new, old = versions(Ridge(alpha=10), lambda y: y.astype(float))
    with pytest.raises(UsageError, match="expected --public DATA with two versions of a linear model"):
        found_in(new, old, public=None)
    with pytest.raises(UsageError, match="expected no --what-if"):
        found_in(new, old, what_if="int8")
    with pytest.raises(ExhumeError, match="expected two versions that differ"):
        found_in(new, new)
    other, _ = versions(RidgeClassifier())
    with pytest.raises(ExhumeError, match=r"expected another version of the linear model in old\.skops"):
        found_in(new, other)
    save_file({"a.weight": torch.ones(3, 4), "b.weight": torch.ones(2, 3)}, "net.safetensors")
    asked = AuditRequest(weights=Path("net.safetensors"), against=Path("net.safetensors"), out=Path("o"))
    assert audit_linear(asked) is None
