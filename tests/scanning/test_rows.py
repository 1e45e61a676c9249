"""Stored records as a table: with their labels, and with the names of their columns."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC, SVR

from exhume.scanning.scan import scan
from exhume.scanning.writing import write_rows
from published_files import fitted, iris, save_skops

X, Y = iris()
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
WORDS = np.array(["setosa", "versicolor", "virginica"], dtype=object)[Y]
BINARY = WORDS[:100]


def written(model: Any, folder: Path) -> list[dict[str, str]]:
    done = scan(save_skops(model, folder / "a.skops"))
    write_rows(done.findings, folder / "rows.csv")
    with (folder / "rows.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("model", "x", "labels"),
    [
        (KNeighborsClassifier(3), X, WORDS),
        (KNeighborsClassifier(3), X, Y * 10),
        (KNeighborsRegressor(3), X, Y / 3),
        (GaussianProcessRegressor(optimizer=None), X, Y / 3),
        (GaussianProcessRegressor(optimizer=None, normalize_y=True), X, Y / 3),
        (GaussianProcessClassifier(optimizer=None), X[:100], BINARY),
        (LabelSpreading(), X, Y + 5),
    ],
    ids=str,
)
def test_every_record_has_its_label(tmp_path: Path, model: Any, x: np.ndarray, labels: np.ndarray) -> None:
    found = [line["label"] for line in written(fitted(model, x, labels), tmp_path)]
    if labels.dtype == object:
        assert found == list(labels)
    else:
        np.testing.assert_allclose([float(label) for label in found], labels, atol=1e-12)


@pytest.mark.parametrize("scaled", [False, True])
def test_support_vectors_have_the_labels_of_their_classes(tmp_path: Path, scaled: bool) -> None:
    machine = SVC()
    fitted(make_pipeline(StandardScaler(), machine) if scaled else machine, X, WORDS)
    lines = written(machine, tmp_path)
    assert [line["label"] for line in lines] == [WORDS[int(line["training_row"])] for line in lines]


def test_where_no_label_is_kept_there_is_none(tmp_path: Path) -> None:
    assert {line["label"] for line in written(fitted(SVR(), X, Y / 3), tmp_path)} == {""}


@pytest.mark.parametrize("scaled", [False, True])
def test_columns_have_their_names(tmp_path: Path, scaled: bool) -> None:
    last = KNeighborsClassifier(3)
    model = make_pipeline(StandardScaler(), last) if scaled else last
    fitted(model, X, WORDS)
    (model[0] if scaled else model).feature_names_in_ = np.array(NAMES, dtype=object)
    lines = written(model, tmp_path)
    assert list(lines[0])[4:] == NAMES
    np.testing.assert_allclose([[float(line[name]) for name in NAMES] for line in lines], X, atol=1e-12)
    (finding,) = [found for found in scan(tmp_path / "a.skops").findings if found.rows is not None]
    assert finding.to_json()["column_names"] == NAMES


def test_names_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    model = fitted(KNeighborsClassifier(3))
    for names in (NAMES[:3], ["a", "a", "b", "c"], ["label", "a", "b", "c"]):
        model.feature_names_in_ = np.array(names, dtype=object)
        assert list(written(model, tmp_path)[0])[4:] == ["x0", "x1", "x2", "x3"]
