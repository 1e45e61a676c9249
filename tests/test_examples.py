"""The examples run as they are and print what their docstrings promise."""

import runpy
from pathlib import Path

import pytest

from exhume_papers.sweeps.spec_file import plan_spec

EXAMPLES = Path(__file__).parents[1] / "examples"
EXPECTED = {
    "audit_finetuned_head": ("Recovered: 2 of 2 training images can be read from the weights.", "finetuned.html"),
    "audit_own_script": ("Recovered: 3 of 3 training samples can be read from the weights.", "report.html"),
    "release_decision": ("Recovered: 3 of 3 training samples can be read from the weights.", "release.html"),
}
SLOW = ("audit_own_script", "release_decision")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in EXPECTED]
)
def test_an_example_says_what_it_promises(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    verdict, page = EXPECTED[name]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == verdict
    assert printed[-1] == page
    assert (tmp_path / page).is_file()
    if name == "release_decision":
        assert "proposal: none; do not publish these weights" in printed
        assert any(line.startswith("not settled: dp (epsilon 8") for line in printed)


def test_every_example_is_tested_and_the_first_is_short() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    script = (EXAMPLES / "audit_own_script.py").read_text(encoding="utf-8").partition('"""\n\n')[2]
    statements = [line for line in script.splitlines() if line.strip() and not line.startswith(("import", " "))]
    assert len(statements) <= 15


def test_the_example_of_a_sweep_is_in_order() -> None:
    _, plan = plan_spec(EXAMPLES / "threshold.toml", None)
    assert len(plan.runs) == 48
