"""The pages of the documentation as something to do: files to write, Python and commands to run, in order.

    python tests/pages.py docs/start.md FOLDER     # does it in FOLDER, with the commands that PATH finds

A fenced block with a title is a file. One of Python without a title is run. Of a block of `sh` each line is a command.
Lines that install something are left to whoever runs the page.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
INSTALLS = ("pip install", "pre-commit", "docker")


@dataclass(frozen=True)
class Step:
    kind: str
    """file, python or command."""
    text: str
    name: str = ""
    """Of a file."""


def steps(page: Path) -> list[Step]:
    """What the page tells its reader to do, in order."""
    found: list[Step] = []
    for language, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if title:
            found.append(Step("file", text, title))
        elif language == "python":
            found.append(Step("python", text))
        elif language == "sh":
            lines = text.replace("\\\n", " ").splitlines()
            found += [Step("command", line.partition("  #")[0].strip()) for line in lines if line.strip()]
    return found


def commands(page: Path) -> list[str]:
    """Every command of a page: lines of `sh` blocks and of indented blocks, and code within sentences."""
    text = page.read_text(encoding="utf-8")
    indented = re.findall(r"^ {4,}((?:exhume|python|make|torchrun) [^\n]*)", text, flags=re.MULTILINE)
    inline = re.findall(r"(?<!`)`((?:exhume|python|make|torchrun)\s[^`]*)`(?!`)", text)
    fenced = [step.text for step in steps(page) if step.kind == "command"]
    return [" ".join(re.sub(r"\s#\s.*", "", line).split()) for line in (*indented, *inline, *fenced)]


def _do(page: Path, folder: Path) -> None:
    for step in steps(page):
        if step.kind == "file":
            (folder / step.name).write_text(step.text, encoding="utf-8")
        elif step.kind == "python":
            subprocess.run(["python", "-c", step.text], cwd=folder, check=True)
        elif not step.text.startswith(INSTALLS):
            print(f"$ {step.text}", flush=True)
            subprocess.run(step.text, cwd=folder, check=True, shell=True)


if __name__ == "__main__":
    _do(Path(sys.argv[1]), Path(sys.argv[2]))
