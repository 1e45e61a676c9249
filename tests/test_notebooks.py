"""The notebooks run from top to bottom, and are kept without outputs: what they recover is not for the repository."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples/notebooks").glob("*.ipynb"))
PRINTED = {
    "audit-your-model": "Recovered: 12 of 12 training samples can be read from the weights.",
    "a-table-and-its-patients": "20 rows, 20 different patients",
    "reproduce-the-law": "p =   8 dn:     recovered",
}


def texts(notebook: nbformat.NotebookNode) -> Iterator[str]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            yield str(output.get("text", "")) + str(output.get("data", {}))


def test_there_are_three_and_each_says_what_it_prints() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(PRINTED)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert list(texts(notebook)) == []
    assert all(cell.get("execution_count") is None for cell in notebook.cells)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's own libraries
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_results_as_a_page_does(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=250, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = list(texts(notebook))
    assert any(PRINTED[path.stem] in text for text in shown), shown
    assert any("text/html" in text or "image/png" in text for text in shown)
