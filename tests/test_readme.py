"""What the README tells a user to type works as it stands."""

import re
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from exhume.cli.app import main

README = Path(__file__).parents[1] / "README.md"


def commands() -> list[str]:
    """The `exhume ...` lines of the README that take seconds; the demo, bench and make have tests of their own."""
    lines = re.findall(r"^    (exhume [^\n#]*)", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [line.strip() for line in lines if line.split()[1] not in ("demo", "bench")]


def test_the_commands_and_the_python_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(commands()) >= 5
    monkeypatch.chdir(tmp_path)
    for command in commands():
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        try:
            main()
        except SystemExit as ended:
            pytest.fail(f"{command} ended with {ended.code}: {capsys.readouterr().err}")
    assert (tmp_path / "runs/a/report.html").is_file()
    for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip().endswith(tuple("0123456789")), "the snippet prints a held-out loss"


def second_command() -> str:
    """What follows `make demo` on the first screen."""
    text = README.read_text("utf-8").replace("\\\n", " ")
    return re.findall(r"^    make demo\n    \.venv/bin/(exhume [^\n]*)\n\n", text, re.MULTILINE)[0]


def test_the_first_screen_has_both_commands_whole_and_says_what_to_do() -> None:
    """Above the first picture, in lines that no window cuts off."""
    above = README.read_text("utf-8").partition("![")[0]
    assert "**What to do about it:**" in above
    lines = [line for line in above.splitlines() if line.startswith("    ")]
    assert len(lines) == 3
    assert max(map(len, lines)) <= 85


def test_the_second_command_audits_what_the_first_one_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("exhume_papers.cli.demo.SAMPLES", 2)
    for line in ("exhume demo --out demo", second_command()):
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with suppress(SystemExit):
            main()
    assert "Recovered: 50 training images" in capsys.readouterr().out
    assert (tmp_path / "audit/report.html").is_file()


def test_the_first_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^    make (\S+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"the Makefile has no target {target}"
    assert "make test" in (README.parent / ".ci/run").read_text(encoding="utf-8")
