"""Pages of the documentation do what they say: start and guides are run, all other commands are looked up."""

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from exhume.cli.app import app
from pages import INSTALLS, commands, steps

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUN = [DOCS / "start.md", *sorted((DOCS / "guides").glob("*.md"))]
ELSEWHERE = {"README.md": "test_readme.py", "architecture.md": "test_extending.py"}
"""Pages whose Python another test runs."""
ALL = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules that a page writes are importable, and forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.usefixtures("own_modules")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the ONNX exporter that needs no other package
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, exhume: Command, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    printed = ""
    for step in steps(page):
        if step.kind == "file":
            Path(step.name).write_text(step.text, encoding="utf-8")
        elif step.kind == "python":
            exec(compile(step.text, str(page), "exec"), names)
            printed += capsys.readouterr().out
        elif step.text.startswith("exhume "):
            done = exhume(*shlex.split(step.text)[1:])
            assert done.returncode == 0, (step.text, done.stderr)
            printed += done.stdout
        elif step.text.startswith("python "):
            runpy.run_path(step.text.split()[1], run_name="__main__")
        else:
            assert step.text.startswith(INSTALLS), step.text
    assert_told(page, printed)


def assert_told(page: Path, printed: str) -> None:
    """Every line that the page shows as printed was printed."""
    for block in re.findall(r"^```text\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            assert line in printed, (line, printed)


def with_python() -> list[Path]:
    """Pages with Python that are no guides. Their commands name files that the page does not make."""
    others = [page for page in ALL if page not in RUN and page.name not in ELSEWHERE]
    return [page for page in others if any(step.kind == "python" for step in steps(page))]


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("page", with_python(), ids=lambda page: page.stem)
def test_python_on_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in steps(page):
        if step.kind == "python":
            exec(compile(step.text, str(page), "exec"), {})
    assert_told(page, capsys.readouterr().out)


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_on_a_page_is_where_a_test_finds_it(page: Path) -> None:
    """In a fenced block, and not indented as commands are."""
    lines = page.read_text(encoding="utf-8")
    assert not re.findall(
        r"^ {4,}(?:import \w+|\w+ = \w+\.\w+\(.*)$", re.sub(r"```.*?```", "", lines, flags=re.DOTALL), re.M
    )


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_python_of_other_pages_is_run_by_another_test(page: str, test: str) -> None:
    assert page in (ROOT / "tests" / test).read_text(encoding="utf-8")


def options(words: list[str]) -> set[str]:
    """The options that the command of a line knows. `train` takes a kind of victim first, or a factory."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("exhume", words[:1], resilient_parsing=True)
    while words and hasattr(command, "resolve_command"):
        _, command, words = command.resolve_command(context, words)
    return {option for parameter in command.get_params(context) for option in parameter.opts}


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_on_a_page_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in commands(page):
        words = command.split()
        if "->" in words or command.startswith(INSTALLS):
            continue
        named = {word.partition("=")[0].strip("[],.;") for word in words if word.startswith(("--", "[--"))}
        if words[0] == "torchrun":
            words, named = words[words.index("exhume") :], named - {"--nproc-per-node"}
        if words[0] == "exhume":
            assert named <= options(words[1:]), command
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE), command
        elif words[1].endswith(".py") and (ROOT / words[1]).is_file():
            source = (ROOT / words[1]).read_text(encoding="utf-8")
            assert all(option in source for option in named), (command, named)
        else:
            assert words[1] in ("-m", "-c") or any(step.name == words[1] for step in steps(page)), command
