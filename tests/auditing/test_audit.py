"""Audits as a whole, on a head that is recovered in a second."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import exhume
from exhume.errors import ExhumeError, UsageError
from exhume.report.page import rebuild, render
from exhume.verdicts import Verdict

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def audited(fitted: Any) -> exhume.Audit:
    return exhume.audit_features(
        fitted.rows,
        fitted.weights,
        "relu",
        truth=fitted.truth.reshape(-1, 1, 4, 4),
        labels=fitted.labels,
        control=fitted.control,
        control_labels=fitted.labels,
        what_if=("int8", "obs30"),
        recipe=("gd",),
        budget_seconds=60,  # all of these end by themselves; a busy machine only takes longer
    )


def test_a_fitted_head_is_recovered_and_records_that_were_not_trained_on_are_not(audited: exhume.Audit) -> None:
    assert audited.verdict is Verdict.RECOVERED
    assert audited.sentence == "Recovered: 3 of 3 training images can be read from the weights."
    summary = audited.summary
    assert (summary["recovered"], summary["records"], summary["control"]["recovered"]) == (3, 3, 0)
    assert summary["error"] < 1e-3 < 0.5 < summary["control"]["error"]
    assert (summary["p"], summary["d"], summary["n"], summary["zone"]) == (300, 16, 3, "data")
    assert json.loads(json.dumps(summary)) == summary


def test_the_attack_is_told_nothing_that_only_the_records_say(fitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a norm nor a number of rows: both would reach it through the records that only judge it."""
    seen: list[Any] = []

    def watched(observation: Any, offers: Any, *_: Any) -> Any:
        seen.append((observation.knowledge, [offer.samples for offer in offers]))
        raise UsageError("seen enough")

    monkeypatch.setattr("exhume.auditing.run.carry_out", watched)
    with pytest.raises(UsageError, match="seen enough"):
        exhume.audit_features(fitted.rows, fitted.weights, "relu", truth=fitted.truth, budget_seconds=60)
    (knowledge, told), *_ = seen
    assert (knowledge.norm, knowledge.samples, set(told)) == (None, None, {None})


def test_every_record_is_set_against_the_control_records(audited: exhume.Audit) -> None:
    content = audited.content()
    assert all(row["distance"] < 0.1 < row["nearest_control"] for row in content["rows"])
    assert all(row["confidence"] >= 0.5 for row in content["rows"])
    shares = {line["key"]: (line["value"], line["control"]) for line in content["results"]}
    assert shares["recovered_fraction"] == (1.0, 0.0)


def test_defences_are_audited_again_with_what_they_cost(audited: exhume.Audit) -> None:
    lines = {line["name"]: line for line in audited.subject.what_if}
    assert list(lines) == ["as published", "int8", "obs30"]
    assert lines["as published"]["output_change"] == 0
    assert lines["as published"]["accuracy"] == 1
    assert 0 < lines["int8"]["output_change"] < 0.05
    assert lines["obs30"]["agreement"] == 1
    assert "90 of 300 features removed" in lines["obs30"]["note"]
    assert all(line["verdict"] in {verdict.value for verdict in Verdict} for line in lines.values())


def test_the_page_is_rebuilt_from_its_json_alone(audited: exhume.Audit, tmp_path: Path) -> None:
    page = audited.save(tmp_path / "report.html")
    written = page.read_text(encoding="utf-8")
    page.unlink()
    assert rebuild(tmp_path / "report.json").read_text(encoding="utf-8") == written
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.json"}
    assert len(written.encode()) < 5_000_000


def test_without_reveal_nothing_sharp_is_in_the_file(audited: exhume.Audit) -> None:
    blurred, sharp = render(audited.content()), render(audited.content(reveal=True))
    assert 'id="reveal"' in sharp
    assert 'id="reveal"' not in blurred
    found = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", sharp)
    assert len(found) >= 9
    assert not any(picture in blurred for picture in found)


def test_the_recovery_as_it_happened_ends_at_the_result(audited: exhume.Audit) -> None:
    frames = audited.content()["frames"]
    assert 3 <= len(frames) <= 14
    assert [frame["iteration"] for frame in frames] == sorted(frame["iteration"] for frame in frames)
    assert frames[-1]["error"] == pytest.approx(audited.summary["median_relative_error"], rel=1e-3)
    assert frames[0]["error"] > 10 * frames[-1]["error"]
    assert frames[-1]["held_out_loss"] == audited.summary["held_out_loss"]
    assert all(frame["held_out_loss"] is not None for frame in frames)


def test_names_from_files_stay_text_on_the_page(audited: exhume.Audit) -> None:
    content = audited.content()
    content["run"] = content["artefact"]["file"] = content["notes"][:] = [HOSTILE]
    for layer in content["layers"]:
        layer |= {"name": HOSTILE, "kind": HOSTILE, "why": HOSTILE}
    for line in (*content["what_if"], *content["attempts"]):
        line |= {"note": HOSTILE}
    page = render(content)
    assert page.count("<script>") == 1
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_the_training_that_the_attacks_cannot_judge_is_told_and_never_called_not_recovered(fitted: Any) -> None:
    noise = torch.randn(300, generator=torch.Generator().manual_seed(1))
    for recipe, ground in (((), "not_recovered"), (("adam", "augmentation"), "inconclusive")):
        audit = exhume.audit_features(fitted.rows, noise, "relu", recipe=recipe, samples=3, budget_seconds=0.5)
        assert audit.verdict is not Verdict.RECOVERED
        if ground == "inconclusive":
            assert audit.verdict is Verdict.INCONCLUSIVE
            assert "assumes another training than this one (Adam, AdamW, RMSprop; Data augmentation)" in audit.sentence


def test_the_records_measure_the_assumption_beside_what_was_told(fitted: Any) -> None:
    told = exhume.audit_features(
        fitted.rows, fitted.weights, "relu", truth=fitted.truth, recipe=("adam",), budget_seconds=60
    )
    assert told.subject.floor is not None
    assert told.subject.floor < 1e-9
    assert told.subject.recipes is not None
    assert told.subject.recipes["broken"] == ["Adam, AdamW, RMSprop"]
    assert "The assumption holds" in told.subject.recipes["measured"][0]
    assert told.verdict is Verdict.RECOVERED


def test_linear_features_have_no_attack_and_the_page_says_so(fitted: Any, tmp_path: Path) -> None:
    audit = exhume.audit_features(fitted.rows, fitted.weights, "linear", samples=3)
    assert audit.verdict is Verdict.INCONCLUSIVE
    assert "No attack could be run" in audit.sentence
    assert audit.subject.attempts == []
    assert all("linear" in line["why"] for line in audit.subject.passed_over)
    page = audit.save(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "There are no results" in page
    assert "method" not in audit.summary


def test_weights_that_no_attack_takes_are_an_error_and_no_verdict(fitted: Any) -> None:
    """A pipeline shall not take them for weights that were attacked in vain."""
    repeated = fitted.rows.clone()
    repeated[7] = repeated[8]
    with pytest.raises(ExhumeError, match="1 rows of V that occur again"):
        exhume.audit_features(repeated, fitted.weights, "relu", budget_seconds=1)
    with pytest.raises(ExhumeError, match="expected weights"):
        exhume.audit_features(fitted.rows, torch.zeros_like(fitted.weights), "relu", budget_seconds=1)


def test_a_small_script_of_its_own_is_audited_with_the_start_it_kept() -> None:
    torch.manual_seed(0)
    data = torch.randn(8, 10)
    data *= 10**0.5 / data.norm(dim=1, keepdim=True)
    model = nn.Sequential(nn.Linear(10, 200, bias=False), nn.ReLU(), nn.Linear(200, 1, bias=False))
    model[0].requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    features = model[:2](data[:3])
    with torch.no_grad():
        change = torch.linalg.pinv(features) @ (torch.tensor([1.0, -1.0, 1.0]) - model(data[:3])[:, 0])
        model[2].weight += change
    audit = exhume.audit(model, initial=before, truth=data[:3], control=data[3:6], budget_seconds=60)
    assert audit.verdict is Verdict.RECOVERED
    assert audit.subject.notes == ["The features are relu(Wx): tried out."]
    assert {fact["name"]: fact["leak"] for fact in audit.subject.layers} == {"0": "still", "2": "attacked"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 0}, "budget to be greater"),
        ({"samples": 0}, "samples to be greater than or equal to 1"),
        ({"recipe": ["magic"]}, "ways of training out of gd, sgd"),
        ({"what_if": ["int8"], "budgets": 3}, "found 'budgets'"),
    ],
)
def test_wrong_options_are_refused_at_once(fitted: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        exhume.audit_features(fitted.rows, fitted.weights, "relu", **options)


def test_defences_are_checked_before_time_is_spent(fitted: Any) -> None:
    for name, words in (("dp", "expected records with labels"), ("magic", "expected a defence such as")):
        with pytest.raises(UsageError, match=words):
            exhume.audit_features(fitted.rows, fitted.weights, "relu", truth=fitted.truth, what_if=(name,))
    with pytest.raises(UsageError, match="records of d = 16 numbers, found 5"):
        exhume.audit_features(fitted.rows, fitted.weights, "relu", truth=torch.randn(3, 5))
    with pytest.raises(UsageError, match="expected truth with control"):
        exhume.audit_features(fitted.rows, fitted.weights, "relu", control=fitted.control)


def test_control_records_that_were_trained_on_are_refused(fitted: Any) -> None:
    both = torch.cat([fitted.control[:1], fitted.truth[:2] * (1 + 1e-8)])
    with pytest.raises(UsageError, match="found 2 of 3 among the training records; leave them out"):
        exhume.audit_features(fitted.rows, fitted.weights, "relu", truth=fitted.truth, control=both)


def test_a_large_control_set_is_cut_to_the_number_of_records(fitted: Any) -> None:
    many = torch.cat([fitted.control] * 20)
    audit = exhume.audit_features(
        fitted.rows, fitted.weights, "linear", truth=fitted.truth, control=many, control_labels=many[:, 0]
    )
    assert audit.subject.control is not None
    assert len(audit.subject.control) == len(fitted.truth)
