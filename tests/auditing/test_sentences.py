"""What an audit says of ordinary models: plain PyTorch, default layers, raw rows of tables and digits.

Each of these was once told something that is not so.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from torch import Tensor, nn

import exhume
from exhume.activations import activation
from exhume.auditing.module_target import target_of_module
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Certificate, Outcome, Reconstruction
from exhume.report.content import case_of, describe, gather
from exhume.report.numbers import plain
from exhume.report.page import render
from exhume.report.subject import Artefact, Subject, attempt_line
from exhume.report.verdict import verdict
from exhume.verdicts import Verdict

SECONDS = 3.0


@dataclass(frozen=True, eq=False)
class Victim:
    model: nn.Sequential
    before: dict[str, Tensor]
    rows: Tensor
    others: Tensor


def digits(first: int, count: int) -> Tensor:
    return torch.tensor(load_digits().data[first : first + count] / 16, dtype=torch.float32)


def trained(
    layers: list[nn.Module], rows: Tensor, labels: Tensor, others: Tensor, steps: int = 200, rate: float = 0.1
) -> Victim:
    """Full-batch SGD at torch's own settings; floating labels are regressed, whole ones classified."""
    model = nn.Sequential(*layers)
    before = copy.deepcopy(model.state_dict())
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy
    if labels.is_floating_point():
        loss = nn.functional.mse_loss
    descent = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        descent.zero_grad()
        loss(model(rows), labels).backward()
        descent.step()
    return Victim(model, before, rows, others)


def dense(d: int, width: int, outputs: int, between: nn.Module) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(d, width), between, nn.Linear(width, outputs)]


@cache
def of_digits(width: int = 128, n: int = 6, steps: int = 200) -> Victim:
    labels = torch.tensor(load_digits().target[:n])
    return trained(dense(64, width, 10, nn.ReLU()), digits(0, n), labels, digits(100, n), steps)


@cache
def of_patients() -> Victim:
    """Eight rows of the diabetes table, of ten numbers each."""
    table = torch.tensor(load_diabetes().data, dtype=torch.float32) * 20
    target = torch.tensor(load_diabetes().target[:8, None] / 100, dtype=torch.float32)
    return trained(dense(10, 150, 1, nn.Tanh()), table[:8], target, table[100:108], rate=0.01)


@cache
def of_scans() -> Victim:
    """Two classes, more rows than dimensions."""
    table = torch.tensor(load_breast_cancer().data, dtype=torch.float32)
    table = (table - table.mean(dim=0)) / table.std(dim=0)
    labels = torch.tensor(load_breast_cancer().target[:40])
    return trained(dense(30, 100, 2, nn.ReLU()), table[:40], labels, table[100:140], rate=0.05)


def without_records(audit: exhume.Audit) -> Verdict:
    """What the same attack says where there are no records: it has seen none."""
    bare = replace(audit.subject, truth=None, control=None, floor=None)
    return Verdict(verdict(case_of(bare, gather(bare)))["verdict"])


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "digits": lambda: {"victim": of_digits()},
    "digits without a start": lambda: {"victim": of_digits(), "initial": None},
    "digits with other records": lambda: {"victim": of_digits(), "truth": digits(500, 6)},
    "digits prepared otherwise": lambda: {"victim": of_digits(), "truth": 16 * digits(0, 6)},
    "patients": lambda: {"victim": of_patients()},
    "scans": lambda: {"victim": of_scans()},
}


@cache
def audited(name: str) -> exhume.Audit:
    asked = CASES[name]()
    victim = asked.pop("victim")
    given = {"initial": victim.before, "truth": victim.rows, "control": victim.others} | asked
    return exhume.audit(victim.model, **given, budget=SECONDS)


@pytest.mark.parametrize("name", CASES)
def test_records_never_make_the_verdict_laxer(name: str) -> None:
    audit = audited(name)
    assert audit.verdict.severity >= without_records(audit).severity
    assert "none of the" not in audit.sentence
    assert "not the training data" not in render(audit.content())


def test_the_first_sentence_answers() -> None:
    for name in CASES:
        audit = audited(name)
        first = audit.sentence.partition(". ")[0]
        if audit.verdict is Verdict.INCONCLUSIVE:
            assert first.endswith("is not settled")
        elif audit.verdict is not Verdict.NOT_RECOVERED:
            assert "can be read from the weights" in first


def test_a_missing_start_is_named_before_the_training_is_blamed() -> None:
    victim = of_digits(steps=20)
    audit = exhume.audit(victim.model, truth=victim.rows, control=victim.others, budget=1.0)
    assert audit.subject.floor is not None
    assert audit.subject.floor > 0.1
    assert audit.verdict is Verdict.INCONCLUSIVE
    order = [
        audit.sentence.index(words) for words in ("were not given (--initial)", "other records", "cannot judge it")
    ]
    assert order == sorted(order)
    assert audit.subject.stronger[0].startswith("The state before training (--initial")


def test_wrong_records_are_named_before_the_training_is_blamed() -> None:
    audit = audited("digits with other records")
    if audit.verdict is Verdict.INCONCLUSIVE:
        assert "Either other records than these were trained on" in audit.sentence
    else:
        assert "Are these the records, prepared as in training?" in audit.sentence


def test_nearly_as_many_rows_as_dimensions_are_a_rank_and_no_sign_of_adam() -> None:
    audit = audited("patients")
    assert "spans only 8 of 10 dimensions" in audit.subject.layers[0]["why"]
    for line in audit.subject.attempts:
        assert "full rank" not in line["note"]


def test_a_border_that_is_never_lit_is_not_counted_in_the_rank() -> None:
    """Digits on a black border, as MNIST has them, on a network that was trained on others before."""
    pictures = nn.functional.interpolate(digits(0, 68).reshape(-1, 1, 8, 8), size=(20, 20), mode="bilinear")
    rows = nn.functional.pad(pictures, (4, 4, 4, 4)).flatten(start_dim=1)
    labels = torch.tensor(load_digits().target[:68])
    earlier = trained(dense(784, 96, 10, nn.ReLU()), rows[8:], labels[8:], rows[:8], steps=30)
    victim = trained(list(earlier.model), rows[:8], labels[:8], rows[8:16], steps=60)
    audit = exhume.audit(victim.model, initial=victim.before, budget=0.2)
    assert "spans only 8 of 784 dimensions" in audit.subject.layers[0]["why"]


def test_a_layer_that_no_attack_could_read_is_not_called_attacked() -> None:
    """Fewer units than twice the samples: the attack on the layer's change refuses."""
    victim = of_digits(width=9)
    audit = exhume.audit(victim.model, initial=victim.before, budget=1.0)
    lines = {line["method"]: line for line in audit.subject.attempts}
    assert lines["silent-units"]["outcome"] is None
    assert "expected at least twice as many units" in lines["silent-units"]["note"]
    for layer in audit.subject.layers:
        assert "silent-units" not in layer["why"]
    page = audit.content()
    used = [item["what"] for item in page["knowledge"] if item["known"] and "whose change was used" in item["what"]]
    ran = {name for line in audit.subject.attempts if line["outcome"] for name in line["layers"]}
    assert bool(used) <= ("0" in ran)


def test_attacks_that_were_not_needed_are_listed_with_the_reason() -> None:
    victim = of_digits(width=512, n=4)
    audit = exhume.audit(victim.model, initial=victim.before, budget=20)
    assert [line["method"] for line in audit.subject.attempts] == ["silent-units"]
    passed = {line["method"]: line["why"] for line in audit.subject.passed_over}
    for method in ("subspace", "split-newton"):
        assert passed[method] == "It is dearer than silent-units, which had explained the weights before it."


def made_up(candidates: Tensor, truth: Tensor, control: Tensor | None, outcome: Outcome, confidence: float) -> Subject:
    """Candidates of an attack on features with a bias, whose weights tell norms."""
    rows = torch.randn(50, truth.shape[1], generator=torch.Generator().manual_seed(0))
    features = RidgeFeatures(HeldRows(rows), activation("tanh"), torch.ones(50))
    certificate = Certificate(outcome, 0.01, 5, (confidence,) * len(candidates))
    found = Reconstruction(
        candidates, torch.ones(len(candidates), 1), "split-newton", certificate, 1e-3, 9, 30.0, 1.0, 99.0, 0
    )
    from exhume.auditing.records import records_of_rows

    return Subject(
        name="model",
        artefact=Artefact("weights", "0" * 64, 1),
        observation=Observation(features, torch.ones(1, 50), Knowledge()),
        found=found,
        finished="2026-01-01T00:00:00+00:00",
        commands=[],
        truth=records_of_rows(truth),
        control=control,
        attempts=[attempt_line(found, "", stopped=False)],
    )


@pytest.mark.parametrize("outcome", [Outcome.RECOVERED, Outcome.PARTIAL, Outcome.SPURIOUS, Outcome.NOT_CONVERGED])
def test_where_the_norm_alone_is_wrong_the_records_came_back_up_to_it(outcome: Outcome) -> None:
    truth, control = digits(0, 20), digits(100, 20)
    subject = made_up(2.2 * truth, truth, control, outcome, 0.9)
    evidence = gather(subject)
    said = verdict(case_of(subject, evidence))
    assert (evidence.recovered, evidence.directions) == (0, 20)
    assert "20 of 20 training samples can be read from the weights up to their norm." in said["sentence"]
    assert Verdict(said["verdict"]).severity >= Verdict.PARTLY_RECOVERED.severity
    assert "20 <small>of 20</small>" in render(describe(subject, evidence, reveal=False))


def test_another_record_of_the_kind_is_no_recovery() -> None:
    """Near-copies of the records, as controls are, within 0.1 of them all the same."""
    truth = digits(0, 5) + 3
    control = truth + 0.05 * digits(100, 5)
    for candidates, recovered in ((control, 0), (truth + 1e-3, 5)):
        evidence = gather(made_up(candidates, truth, control, Outcome.NOT_CONVERGED, 0.0))
        assert float(torch.tensor([row["distance"] for row in evidence.rows]).max()) < 0.1
        assert evidence.recovered == recovered
        assert evidence.control is not None
        assert evidence.control["recovered"] == 5 - recovered


def test_the_page_counts_confirmed_candidates_and_has_a_confidence_for_each() -> None:
    truth = digits(0, 20)
    subject = made_up(truth.repeat(7, 1), truth, None, Outcome.PARTIAL, 0.2)
    assert subject.found is not None
    sure = replace(subject.found.certificate, confidence=(0.9,) * 3 + (0.2,) * 137)
    subject = replace(subject, truth=None, found=replace(subject.found, certificate=sure))
    content = describe(subject, gather(subject), reveal=False)
    assert content["verdict"]["sentence"].startswith("Partly recovered: 3 training samples can be read")
    assert [row["confidence"] for row in content["rows"]] == sorted(sure.confidence, reverse=True)
    page = render(content)
    assert "3 <small>of 140 candidates</small>" in page
    assert page.count(">0.9<") == 3


def test_the_calculator_invents_no_n() -> None:
    subject = replace(made_up(digits(0, 2), digits(0, 2), None, Outcome.PARTIAL, 0.9), truth=None)
    content = describe(subject, gather(subject), reveal=False)
    assert content["gauge"]["n"] is None
    assert 'data-n=""' in render(content)


def test_nothing_that_an_audit_holds_prints_recovered_rows() -> None:
    audit = audited("digits")
    for held in (audit, audit.subject, audit.evidence, audit.subject.found):
        assert "tensor" not in repr(held)
        assert len(repr(held)) < 3000
    assert "tensor" not in audit._repr_html_()


def test_what_would_have_helped_is_what_was_not_given(tmp_path: Path) -> None:
    victim = of_digits()
    bare = exhume.audit(victim.model, budget=0.3)
    begins = [line.partition(" (")[0] for line in bare.subject.stronger]
    assert begins[:4] == [
        "The state before training",
        "The recipe",
        "The number of training records",
        "The training records",
    ]
    full = exhume.audit(
        victim.model,
        initial=victim.before,
        truth=victim.rows,
        control=victim.others,
        samples=6,
        recipe=["sgd"],
        budget=SECONDS,
    )
    assert [line for line in full.subject.stronger if not line.startswith("More time")] == []
    assert bare.summary["stronger"] == bare.subject.stronger
    page = bare.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What would have made this audit stronger" in page


def test_how_far_features_moved_is_measured_where_the_records_are() -> None:
    """Random inputs may see far less of it than the data: nobody says "little" of them."""
    victim = of_digits(steps=300)
    stated = [
        exhume.audit(victim.model, initial=victim.before, budget=1.0, truth=truth).content()["recipes"]["measured"]
        for truth in (victim.rows, None)
    ]
    ends = [copy.deepcopy(victim.model) for _ in range(2)]
    ends[0].load_state_dict(victim.before)
    then, now = (end[:-1](victim.rows).detach().double() for end in ends)
    moved = float((now - then).norm() / now.norm())
    assert any(line.startswith(f"The features of these records moved by {plain(moved)}") for line in stated[0])
    assert any("features of the candidates" in line or "features of random inputs" in line for line in stated[1])
    assert not any(line.endswith("little.") for line in stated[1])


def test_a_linear_model_is_told_that_no_attack_tells_its_records_apart() -> None:
    """Its head reads the inputs themselves: there are no layers before it, and nothing to search for."""
    labels = torch.tensor(load_digits().target[:6])
    victim = trained([nn.Flatten(), nn.Linear(64, 10)], digits(0, 6), labels, digits(100, 6))
    audit = exhume.audit(victim.model, initial=victim.before, truth=victim.rows, control=victim.others, budget=SECONDS)
    assert audit.subject.attempts == []
    assert all("single ones cannot be told apart" in line["why"] for line in audit.subject.passed_over)
    page = render(audit.content())
    assert "layers before the head" not in page.replace("The layers before the head as they were", "")


def test_what_is_said_of_a_change_names_the_descent_that_makes_it_so() -> None:
    """Adam's steps are no sums over samples, and nobody has to tell an audit that it was Adam."""
    victim = of_digits()
    for initial in (victim.before, None):
        target = target_of_module(victim.model, input_shape=(64,), initial=initial)
        said = [layer.why for layer in target.layers if "a combination of" in layer.why]
        assert len(said) == 2
        assert all("y gradient descent, " in why.partition("a combination of")[0] for why in said)
