"""Records told by where training came to rest."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.svm import LinearSVC
from torch import Tensor, nn

from exhume.attacks.probes.ranking import Probe, rank_records
from exhume.attacks.probes.residuals import residuals
from exhume.attacks.probes.stationary import Stationarity, View, stationarity
from exhume.errors import ExhumeError, UsageError
from exhume.metrics.detection import detection_rate

FEATURES, CLASSES, MEMBERS = 120, 4, 60


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def records(count: int = 300) -> tuple[Tensor, Tensor]:
    """Embeddings that vary much in few directions, and classes that they tell in part."""
    rows = drawn(count, FEATURES, seed=1) * torch.logspace(0, -1, FEATURES, dtype=torch.float64) + 0.5
    told = (rows - 0.5) @ drawn(FEATURES, CLASSES, seed=2) / 5
    return rows, (told + drawn(count, CLASSES, seed=3)).argmax(dim=1)


def fitted_head(model: object, rows: Tensor, labels: Tensor) -> Tensor:
    model.fit(rows.numpy(), labels.numpy())  # type: ignore[attr-defined]
    weight, bias = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)  # type: ignore[attr-defined]
    return torch.from_numpy(np.concatenate([weight, bias[:, None]], axis=1))


def with_ones(rows: Tensor) -> Tensor:
    return torch.cat([rows, torch.ones(len(rows), 1, dtype=rows.dtype)], dim=1)


def twin(head: Tensor, start: Tensor, rows: Tensor, labels: Tensor, view: View) -> tuple[Tensor, float]:
    """Every term written out as a column of k h numbers: scores, and the share that is explained."""
    centred = rows - rows.mean(dim=0)
    covariance = centred.T @ centred / len(rows)
    values, vectors = torch.linalg.eigh(covariance / covariance.diagonal().mean())
    kept = values > 1e-6 * values[-1]
    root = vectors[:, kept] @ torch.diag((values[kept] + view.ridge) ** -0.5)
    pull = residuals(rows @ head.T, labels.double(), "cross-entropy")
    if view.halfway:
        pull = (pull + residuals(rows @ start.T, labels.double(), "cross-entropy")) / 2
    sizes = torch.ones_like(head)
    if view.adaptive:
        sizes = (pull.T.square() @ rows.square() / len(rows)).sqrt()
        sizes = sizes / sizes.max()
    columns = torch.einsum("mk,mh->mkh", pull, rows @ root).flatten(start_dim=1)
    target, along = ((head * sizes) @ root).flatten(), ((start * sizes) @ root).flatten()
    away = torch.eye(len(along), dtype=torch.float64) - along[:, None] * along / along.square().sum()
    columns, target = columns @ away, away @ target
    columns = columns / columns.norm(dim=1, keepdim=True)
    z, left = nnls(columns.T.numpy(), target.numpy())
    expected = columns @ (target - columns.T @ torch.from_numpy(z)) + torch.from_numpy(z)
    return expected, 1 - left**2 / float(target.square().sum())


def test_it_is_non_negative_least_squares_over_the_whitened_terms_of_all_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, labels = records(50)
    head, start = drawn(CLASSES, FEATURES, seed=5), drawn(CLASSES, FEATURES, seed=6)
    for adaptive, halfway, ridge in ((False, False, 0.1), (True, False, 0.01), (False, True, 1.0), (True, True, 0.1)):
        view = View(adaptive, halfway, ridge)
        monkeypatch.setattr("exhume.attacks.probes.stationary._likeliest", lambda *seen, view=view: view)
        found = stationarity(head, rows, labels.double(), "cross-entropy", initial=start)
        expected, explained = twin(head, start, rows, labels, view)
        assert torch.allclose(found.score, expected, atol=1e-5), view
        assert found.explained == pytest.approx(explained, abs=1e-6)


def test_a_head_that_adam_left_early_is_told_by_adams_steps() -> None:
    """Embeddings whose numbers differ in size, which the steps of Adam do not."""
    rows, labels = records(200)

    def left(optimiser_of: type[torch.optim.Optimizer], rate: float) -> Stationarity:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Linear(FEATURES, CLASSES)
            nn.init.zeros_(model.weight)
            optimiser = optimiser_of(model.parameters(), lr=rate)  # type: ignore[call-arg]
            for _ in range(60):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(rows[:MEMBERS].float()), labels[:MEMBERS]).backward()
                optimiser.step()
        head = torch.cat([model.weight, model.bias[:, None]], dim=1).detach()
        return stationarity(head, with_ones(rows), labels.double(), "cross-entropy", constant=True)

    adam, plain = left(torch.optim.Adam, 1e-2), left(torch.optim.SGD, 1.0)
    assert adam.view.adaptive
    assert not plain.view.adaptive
    assert detection_rate(plain.score[:MEMBERS], plain.score[MEMBERS:], 0.01) > 0.5


@pytest.mark.parametrize(
    ("model", "loss", "classes"),
    [
        (LogisticRegression(C=0.1, tol=1e-8, max_iter=1000), "cross-entropy", CLASSES),
        (LogisticRegression(C=0.1, tol=1e-8, max_iter=1000), "logistic", 2),
        (RidgeClassifier(alpha=5.0), "signed-square", CLASSES),
        (RidgeClassifier(alpha=5.0), "signed-square", 2),
        (LinearSVC(C=0.05, tol=1e-8, dual=False), "squared-hinge", CLASSES),
        (Ridge(alpha=5.0), "square", 0),
    ],
)
def test_the_members_of_a_model_of_scikit_learn_hold_it_in_place(model: object, loss: str, classes: int) -> None:
    rows, labels = records(150)
    if classes == 2:
        labels = (labels > 1).long()
    target = rows[:, 0] + drawn(len(rows), seed=4) if classes == 0 else labels
    members = 20 if classes in (0, 2) else MEMBERS  # one output has fewer equations
    head = fitted_head(model, rows[:members], target[:members])
    found = stationarity(head, with_ones(rows), target.double(), loss, constant=True)
    pulling = residuals(with_ones(rows) @ head.T, target.double(), loss).norm(dim=1)[:members] > 1e-2
    rate = detection_rate(found.score[:members][pulling], found.score[members:], 0.01)
    assert found.explained > 0.999
    assert rate > 0.85
    assert pulling.double().mean() > 0.85, "a record that is fitted has no part in it"


def test_members_that_are_missing_cost_less_with_whitening_than_without(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = records()
    head = fitted_head(LogisticRegression(C=0.1, tol=1e-8, max_iter=1000), rows[:MEMBERS], labels[:MEMBERS])
    kept = torch.cat([torch.arange(MEMBERS // 2), torch.arange(MEMBERS, 300)])

    def auc() -> float:
        found = stationarity(head, with_ones(rows)[kept], labels[kept].double(), "cross-entropy", constant=True)
        own, others = found.score[: MEMBERS // 2], found.score[MEMBERS // 2 :]
        return float((own[:, None] > others).double().mean())

    whitened = auc()
    monkeypatch.setattr("exhume.attacks.probes.stationary._likeliest", lambda *seen: View(ridge=1e6))
    assert whitened > auc() + 0.02
    assert whitened > 0.85


def test_adam_with_l2_comes_to_the_same_rest() -> None:
    rows, labels = records()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(FEATURES, CLASSES)
        optimiser = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=2e-2)
        for _ in range(1500):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(rows[:MEMBERS].float()), labels[:MEMBERS]).backward()
            optimiser.step()
    head = torch.cat([model.weight, model.bias[:, None]], dim=1).detach()
    found = stationarity(head, with_ones(rows), labels.double(), "cross-entropy", constant=True)
    assert detection_rate(found.score[:MEMBERS], found.score[MEMBERS:], 0.01) > 0.9


def test_a_ranking_uses_labels_only_where_non_members_have_them_too() -> None:
    rows, labels = records()
    head = fitted_head(LogisticRegression(C=0.1, tol=1e-8, max_iter=1000), rows[:MEMBERS], labels[:MEMBERS])
    probe, (own, others) = Probe(head, head, constant=True), (rows[:150], rows[150:])
    known, theirs = labels[:150].double(), labels[150:].double()
    found = rank_records(probe, own, others, "cross-entropy", None, known, theirs)
    assert found.stationary is not None
    assert found.explained == pytest.approx(1, abs=1e-3)
    assert sorted(found.order[:50])[-1] < MEMBERS
    for labelled, loss in ((None, "cross-entropy"), (theirs, None)):
        assert rank_records(probe, own, others, loss, None, known, labelled).stationary is None
    with pytest.raises(ExhumeError, match="finite labels"):
        rank_records(probe, own, others, "cross-entropy", None, known * torch.nan, theirs)


def test_p_values_of_records_that_were_not_trained_on_are_uniform() -> None:
    small = []
    for seed in range(20):
        rows = drawn(130, FEATURES, seed=100 + seed)
        labels = (rows[:, :CLASSES] + drawn(130, CLASSES, seed=200 + seed)).argmax(dim=1)
        head = fitted_head(LogisticRegression(C=0.1, max_iter=1000), rows[:30], labels[:30])
        known = labels.double()
        found = rank_records(
            Probe(head, head, constant=True), rows[30:60], rows[60:], "cross-entropy", None, known[30:60], known[60:]
        )
        assert found.p_value is not None
        small.append(found.p_value <= 0.1)
    assert abs(float(torch.cat(small).double().mean()) - 0.1) < 0.04


def test_residuals_are_minus_the_gradients_of_their_losses() -> None:
    outputs = drawn(6, 3, seed=8).requires_grad_()
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    own = nn.functional.one_hot(labels, 3).double()
    sides = 2 * own - 1
    losses = {
        "square": 0.5 * (own - outputs).square().sum(),
        "signed-square": 0.5 * (sides - outputs).square().sum(),
        "cross-entropy": nn.functional.cross_entropy(outputs, labels, reduction="sum"),
        "squared-hinge": (1 - sides * outputs).clamp_min(0).square().sum(),
    }
    for name, loss in losses.items():
        (gradient,) = torch.autograd.grad(loss, outputs)
        assert torch.allclose(residuals(outputs.detach(), labels.double(), name), -gradient), name


@pytest.mark.parametrize(
    ("labels", "loss", "complaint"),
    [
        ([0.5, 0.0], "cross-entropy", "labels as classes"),
        ([-1.0, 0.0], "cross-entropy", "labels as classes"),
        ([0.0, 4.0], "cross-entropy", "classes from 0 to 3 for 4 outputs, found 4"),
        ([0.0, 1.0], "log", "expected a loss out of"),
        ([0.0, 1.0], "logistic", "one output for the logistic loss"),
    ],
)
def test_labels_and_losses_that_do_not_fit_are_refused(labels: list[float], loss: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        residuals(torch.zeros(2, CLASSES), torch.tensor(labels), loss)
