"""Two versions of a model that stores its records: the deleted one is named, row by row."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from exhume.auditing.stored_versions import stored_changes
from exhume.errors import ExhumeError
from published_files import save_onnx, save_skops

Command = Callable[..., subprocess.CompletedProcess[str]]
DELETED = 23


def records() -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(0)
    x = dice.normal(size=(60, 3)) * [1, 10, 0.1]
    return x, (x[:, 0] + x[:, 1] / 10 + dice.normal(size=60) > 0).astype(int)


def versions(model: Any, folder: Path, save: Callable[[Any, Path], Path] = save_skops) -> tuple[Path, Path, int]:
    """The newer version, the older one, and the number of the record that was deleted: a support vector, if any."""
    x, y = records()
    old = save(model.fit(x, y), folder / f"old.{save.__name__[5:]}")
    last = model[-1] if hasattr(model, "steps") else model
    gone = int(last.support_[7]) if hasattr(last, "support_") else DELETED
    kept = np.arange(len(x)) != gone
    new = save(model.fit(x[kept], y[kept]), folder / f"new.{save.__name__[5:]}")
    return new, old, gone


@pytest.mark.parametrize(
    "model", [KernelRidge(kernel="rbf"), KNeighborsClassifier(), GaussianProcessRegressor(alpha=1)]
)
def test_a_deleted_record_is_the_one_that_is_stored_no_more(tmp_path: Path, model: Any) -> None:
    new, old, gone = versions(model, tmp_path)
    (change,) = stored_changes(new, old)
    assert [row.place for row in change.gone] == [gone]
    assert np.array_equal(change.gone[0].values, records()[0][gone])
    assert (change.new, change.shared) == ((), 59)
    (back,) = stored_changes(old, new)
    assert [row.place for row in back.new] == [gone]


@pytest.mark.parametrize("model", [SVC(), SVR(), make_pipeline(StandardScaler(), SVC())])
def test_a_deleted_support_vector_is_told_from_one_that_the_boundary_left(tmp_path: Path, model: Any) -> None:
    new, old, gone = versions(model, tmp_path)
    (change,) = stored_changes(new, old)
    sure = [row for row in change.gone if row.how.startswith("deleted:")]
    assert [row.number for row in sure] == [gone]
    assert np.allclose(sure[0].values, records()[0][gone])
    assert not any(row.how.startswith("added:") for row in change.new)
    assert change.reweighted


def test_versions_in_onnx(tmp_path: Path) -> None:
    def save_as(model: Any, path: Path) -> Path:
        return save_onnx(model, path, 3)

    save_as.__name__ = "save_onnx"
    new, old, gone = versions(SVC(), tmp_path, save_as)
    (change,) = stored_changes(new, old)
    expected = records()[0][gone].astype(np.float32)
    assert any(np.allclose(row.values, expected) for row in change.gone)
    assert all(row.number is None for row in change.gone)


def test_the_same_version_twice_and_another_model(tmp_path: Path) -> None:
    new, old, _ = versions(KNeighborsClassifier(), tmp_path)
    (same,) = stored_changes(old, old)
    assert (same.gone, same.new) == ((), ())
    x, y = records()
    other = save_skops(LogisticRegression().fit(x, y), tmp_path / "linear.skops")
    assert stored_changes(other, old) == ()
    with pytest.raises(ExhumeError, match="stores records as"):
        stored_changes(new, other)


@pytest.mark.usefixtures("shapes_unchecked")
def test_an_audit_names_the_record_and_hides_it(exhume: Command, tmp_path: Path) -> None:
    new, old, gone = versions(KernelRidge(kernel="rbf"), tmp_path)
    x = records()[0]
    np.save(tmp_path / "deleted.npy", x[[gone]])
    asked = ("audit", new, "--against", old, "--truth", tmp_path / "deleted.npy", "--fail-on", "recovered")
    done = exhume(*asked, "--out", tmp_path / "hidden", "--json")
    assert done.returncode == 1
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert (told["verdict"], told["recovered"], told["records"], told["samples_found"]) == ("recovered", 1, 1, 1)
    assert told["changes"][0]["gone"][0]["place"] == gone
    shown = f"{x[gone][1]:.6g}"
    for page in (tmp_path / "hidden").iterdir():
        assert shown[:6] not in page.read_text()
    assert exhume(*asked[:-2], "--out", tmp_path / "open", "--reveal").returncode == 0
    assert shown in (tmp_path / "open" / "report.html").read_text()
    assert repr(float(x[gone][1])) in (tmp_path / "open" / "recovered.csv").read_text()
