"""Linear models of scikit-learn, read from skops and ONNX files as scikit-learn itself answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.decomposition import PCA
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC

from exhume.auditing.stored_versions import stored_changes
from exhume.auditing.without_code import read_network
from exhume.errors import ExhumeError, UsageError
from exhume.experiments.head_file import read_head_file
from exhume.formats.linear_head import head_of
from exhume.formats.reading import read_contents
from published_files import fitted, iris, save_h5, save_keras, save_onnx, save_skops, some_layers

Save = Callable[[Any, Path], Path]
SAVE: dict[str, Save] = {"skops": save_skops, "onnx": save_onnx}
MODELS = [
    (LogisticRegression(max_iter=500), 3, "cross-entropy"),
    (LogisticRegression(max_iter=500), 2, "logistic"),
    (RidgeClassifier(), 3, "signed-square"),
    (RidgeClassifier(), 2, "signed-square"),
    (LinearSVC(dual=False), 3, "squared-hinge"),
    (LinearSVC(dual=False), 2, "squared-hinge"),
    (Ridge(), 0, "square"),
]
BY_VALIDATION = [
    (LogisticRegressionCV(Cs=2, cv=2), 3, "cross-entropy"),
    (LogisticRegressionCV(Cs=2, cv=2), 2, "logistic"),
    (LogisticRegressionCV(Cs=2, cv=2, refit=False), 2, None),
    (RidgeCV(), 0, "square"),
    (RidgeClassifierCV(), 2, "signed-square"),
    (RidgeClassifierCV(), 3, "signed-square"),
    (SGDClassifier(loss="log_loss"), 2, "logistic"),
    (SGDClassifier(loss="log_loss"), 3, None),
    (SGDClassifier(loss="squared_hinge"), 3, "squared-hinge"),
    (SGDClassifier(), 2, None),
]


def trained(model: Any, classes: int) -> Any:
    x, y = iris()
    return fitted(model, x, {0: y + 0.5, 2: (y > 0).astype(int), 3: y}[classes])


@pytest.mark.parametrize(("model", "classes", "loss"), BY_VALIDATION)
def test_their_relatives_are_read_alike(tmp_path: Path, model: Any, classes: int, loss: str | None) -> None:
    trained(model, classes)
    path = save_skops(model, tmp_path / "model.skops")
    found, x = head_of(read_contents(path), path), iris()[0]
    assert found.bias is not None
    assert found.loss == loss
    expected = model.predict(x) if classes == 0 else model.decision_function(x)
    assert np.allclose((x @ found.weight.T + found.bias).squeeze(), expected, atol=1e-4)


def one_layer() -> torch.nn.Linear:
    weight, bias = some_layers((6, 3))[0]
    layer = torch.nn.Linear(6, 3)
    layer.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
    return layer


@pytest.mark.parametrize("name", ["a.pt", "b.pt", "a.keras", "a.h5", "a.safetensors"])
def test_a_single_layer_of_any_file_is_a_head(tmp_path: Path, name: str) -> None:
    layer, path = one_layer(), tmp_path / name
    if name.endswith(".pt"):
        state = layer.state_dict()
        torch.save(state if name == "a.pt" else {"state_dict": {f"fc.{key}": state[key] for key in state}}, path)
    elif name.endswith(".safetensors"):
        save_file(layer.state_dict(), path)
    else:
        {"a.keras": save_keras, "a.h5": save_h5}[name](some_layers((6, 3)), path)
    probe = read_head_file(path).probe
    assert probe.constant
    torch.testing.assert_close(probe.change, torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().double())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.joblib", "skops.io.dump(joblib.load"),
        ("a.gguf", "gguf_file"),
        ("a.keras", "one dense layer"),
        ("a.npy", "weight"),
    ],
)
def test_a_head_that_cannot_be_read_says_what_helps(tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / name
    if name == "a.joblib":
        joblib.dump(trained(Ridge(), 0), path)
    elif name == "a.keras":
        save_keras(some_layers(), path)
    elif name == "a.npy":
        np.save(path, np.ones((3, 6)))
    else:
        path.write_bytes(b"GGUF")
    with pytest.raises(ExhumeError) as refused:
        read_head_file(path)
    assert words in str(refused.value)


def test_an_audit_of_a_single_layer_names_the_command(tmp_path: Path) -> None:
    torch.save(one_layer().state_dict(), tmp_path / "one.pt")
    with pytest.raises(UsageError, match=r"exhume rank one\.pt --candidates DATA --out DIR"):
        read_network(tmp_path / "one.pt")


def test_an_audit_against_a_pickle_gives_the_line_that_converts_it(tmp_path: Path) -> None:
    new = save_skops(trained(SVC(), 2), tmp_path / "new.skops")
    joblib.dump(trained(SVC(), 2), tmp_path / "old.joblib")
    with pytest.raises(ExhumeError, match=r"skops\.io\.dump\(joblib\.load"):
        stored_changes(new, tmp_path / "old.joblib")


@pytest.mark.parametrize("kind", SAVE)
@pytest.mark.parametrize(("model", "classes", "loss"), MODELS)
def test_a_head_answers_as_its_model_does(tmp_path: Path, kind: str, model: Any, classes: int, loss: str) -> None:
    trained(model, classes)
    path = SAVE[kind](model, tmp_path / f"model.{kind}")
    found = head_of(read_contents(path), path)
    x = iris()[0]
    assert found.bias is not None
    answers = x @ found.weight.T + found.bias
    expected = model.predict(x) if classes == 0 else model.decision_function(x)
    assert np.allclose(answers.squeeze(), expected, atol=1e-4)
    assert found.classes == (None if classes == 0 else tuple(range(classes)))
    tells = kind == "skops" or loss in ("cross-entropy", "logistic", "square")
    assert found.loss == (loss if tells else None), "ONNX keeps answers, and not the loss"


@pytest.mark.parametrize(
    ("kind", "scaler"),
    [
        ("skops", StandardScaler()),
        ("skops", MinMaxScaler()),
        ("skops", RobustScaler()),
        ("skops", StandardScaler(with_mean=False)),
        ("onnx", StandardScaler()),
        ("onnx", RobustScaler()),
        ("onnx", StandardScaler(with_mean=False)),
    ],
)
def test_scalers_in_front_are_applied_to_the_records(tmp_path: Path, kind: str, scaler: Any) -> None:
    model = trained(make_pipeline(scaler, LogisticRegression(max_iter=500)), 3)
    path = SAVE[kind](model, tmp_path / f"model.{kind}")
    found, x = head_of(read_contents(path), path), iris()[0]
    assert found.prepare is not None
    assert found.bias is not None
    answers = found.prepare(x) @ found.weight.T + found.bias
    assert np.allclose(answers, model.decision_function(x), atol=1e-3)


@pytest.mark.parametrize("kind", SAVE)
def test_any_other_step_in_front_is_refused(tmp_path: Path, kind: str) -> None:
    model = trained(make_pipeline(PCA(2), LogisticRegression(max_iter=500)), 3)
    path = SAVE[kind](model, tmp_path / f"model.{kind}")
    with pytest.raises(UsageError, match="in front of the model"):
        head_of(read_contents(path), path)


def test_files_without_one_linear_model_are_refused(tmp_path: Path) -> None:
    path = save_skops(trained(SVC(), 3), tmp_path / "svc.skops")
    with pytest.raises(UsageError, match="expected one of LogisticRegression"):
        read_head_file(path)
    path = save_skops(LogisticRegression(), tmp_path / "new.skops")
    with pytest.raises(ExhumeError, match="expected a fitted LogisticRegression"):
        read_head_file(path)
    broken = trained(LogisticRegression(max_iter=500), 3)
    broken.coef_ = broken.coef_[:2]
    path = save_skops(broken, tmp_path / "broken.skops")
    with pytest.raises(ExhumeError, match="one intercept per output"):
        read_head_file(path)
    broken.intercept_ = broken.intercept_[:2]
    path = save_skops(broken, tmp_path / "short.skops")
    with pytest.raises(ExhumeError, match="expected 3 outputs for the classes"):
        read_head_file(path)
    broken.coef_, broken.intercept_ = np.full((3, 4), np.nan), np.zeros(3)
    path = save_skops(broken, tmp_path / "nan.skops")
    with pytest.raises(ExhumeError, match="finite"):
        read_head_file(path)


def test_a_model_without_an_intercept_has_no_bias(tmp_path: Path) -> None:
    path = save_skops(trained(Ridge(fit_intercept=False), 0), tmp_path / "model.skops")
    found = read_head_file(path)
    assert not found.probe.constant
    assert found.probe.change.shape == torch.Size([1, 4])
