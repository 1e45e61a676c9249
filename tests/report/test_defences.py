from collections.abc import Callable

import pytest

from exhume.experiments.run import RunFolder
from exhume.files import read_json, write_json
from exhume.report.defences import applied_defences
from exhume.report.page import render
from run_content import collect

MakeRun = Callable[..., RunFolder]


@pytest.mark.parametrize(
    ("config", "summary", "expected"),
    [
        ({}, {"defence": "int8"}, None),
        ({"victim": "rf", "defence": None, "model": {"ridge": None}}, {}, []),
        ({"victim": "rf", "defence": "int8"}, {}, ["int8: weights rounded to 8 bits"]),
        ({"victim": "rf"}, {"defence": "bf16"}, ["bf16: weights rounded to bfloat16"]),
        ({"victim": "rf", "model": {"ridge": 0.5}}, {}, ["ridge penalty 0.5"]),
        ({"victim": "vit", "model": {"recipe": {"weight_decay": 0.0}}}, {}, []),
        (
            {"victim": "vit", "model": {"recipe": {"weight_decay": 0.01}}, "defence": "obs50+noise0.01"},
            {},
            [
                "weight decay 0.01",
                "obs50: 50 % of the features pruned by Optimal Brain Surgeon",
                "noise0.01: Gaussian noise of 0.01 times the weights' root mean square",
            ],
        ),
        (
            {"victim": "rf", "model": {"privacy": {"noise": 1.0}}},
            {"epsilon": 7.66, "delta": 1e-5},
            ["DP-SGD, epsilon 7.66 at delta 1e-5"],
        ),
        (
            {"victim": "rf", "model": {"privacy": {"noise": 0.0}}},
            {"epsilon": None, "delta": 1e-5},
            ["DP-SGD without a finite epsilon"],
        ),
    ],
)
def test_defences_of_training_and_of_publishing_are_named(
    config: dict[str, object], summary: dict[str, object], expected: list[str] | None
) -> None:
    assert applied_defences(config, summary) == expected


def test_a_report_names_the_defence_that_was_applied_and_never_denies_it(make_run: MakeRun) -> None:
    run = make_run()
    write_json(run.path / "config.json", read_json(run.path / "config.json") | {"defence": "int8"})
    content = collect(run, reveal=False)
    assert content["defences"] == ["int8: weights rounded to 8 bits"]
    assert "Defences other than those of this model (int8: weights rounded to 8 bits)." in content["not_tested"]
    assert "Defences applied: int8: weights rounded to 8 bits." in content["model_card"]
    page = render(content)
    assert "<dd>int8: weights rounded to 8 bits</dd>" in page
    assert "none was applied" not in page


def test_a_report_says_that_there_was_no_defence_or_that_nobody_knows(make_run: MakeRun) -> None:
    run = make_run()
    content = collect(run, reveal=False)
    assert "Defences: none was applied, so none was audited again." in content["not_tested"]
    assert "No defence was applied." in content["model_card"]
    (run.path / "config.json").unlink()
    content = collect(run, reveal=False)
    assert "Defences: whether any was applied is not known here." in content["not_tested"]
    assert "Defences of this model are not known." in content["model_card"]
