"""ONNX keeps what a model answers with: each kind of finding is found in such a file as well."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC, SVR

from exhume.scanning.finding import Finding
from exhume.scanning.scan import scan
from published_files import fitted, iris, save_onnx

X, _ = iris()


def found_in(path: Path) -> dict[str, Finding]:
    return {finding.rule: finding for finding in scan(path).findings}


def rows(finding: Finding) -> np.ndarray:
    assert finding.rows is not None
    return finding.rows.read()


@pytest.mark.parametrize("last", [SVC(), KNeighborsClassifier(3), GaussianProcessRegressor(RBF(), optimizer=None)])
def test_records_behind_a_scaler_of_onnx_come_in_their_own_units(tmp_path: Path, last: Any) -> None:
    machine = fitted(make_pipeline(StandardScaler(), last))
    (own,) = [rows(found) for found in scan(save_onnx(machine, tmp_path / "a.onnx")).findings if found.rows is not None]
    np.testing.assert_allclose(own, X[last.support_] if isinstance(last, SVC) else X, atol=1e-5)


@pytest.mark.parametrize("model", [SVC(), SVC(probability=False, kernel="poly"), SVR()], ids=str)
def test_every_support_vector_of_onnx_is_listed(tmp_path: Path, model: Any) -> None:
    finding = found_in(save_onnx(fitted(model), tmp_path / "a.onnx"))["support-vectors"]
    np.testing.assert_allclose(rows(finding), model.support_vectors_, rtol=1e-6)


@pytest.mark.parametrize("kernel", [RBF(2.0), ConstantKernel() * RBF([1.0, 2.0, 3.0, 4.0]), Matern()], ids=str)
def test_every_record_of_a_gaussian_process_in_onnx_is_listed(tmp_path: Path, kernel: Any) -> None:
    """The records go through the scale of the kernel first: they are listed as they were before."""
    model = GaussianProcessRegressor(kernel, optimizer=None, alpha=1.0)
    finding = found_in(save_onnx(fitted(model), tmp_path / "a.onnx"))["kernel-basis"]
    np.testing.assert_allclose(rows(finding), X, rtol=1e-6)


def test_a_kernel_of_products_in_onnx_is_possible_only(tmp_path: Path) -> None:
    finding = found_in(save_onnx(fitted(KernelPCA(2)), tmp_path / "a.onnx"))["kernel-basis"]
    np.testing.assert_allclose(rows(finding), X, rtol=1e-6)
    assert finding.certainty.value == "possible"


@pytest.mark.parametrize(
    ("model", "rule"), [(QuantileTransformer(n_quantiles=50), "quantiles"), (StandardScaler(), "column-statistics")]
)
def test_values_and_statistics_are_found_in_onnx(tmp_path: Path, model: Any, rule: str) -> None:
    assert set(found_in(save_onnx(model.fit(X), tmp_path / "a.onnx"))) == {rule}
