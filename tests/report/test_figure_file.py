import ast
import re
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import exhume
from exhume.report.figure_file import save_figure


def figure() -> Figure:
    drawn = Figure(figsize=(1, 1), dpi=50)
    FigureCanvasAgg(drawn)
    return drawn


def test_a_drawing_that_fails_leaves_the_picture_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    save_figure(figure(), path)
    before = path.read_bytes()
    assert before.startswith(b"\x89PNG")

    def die(self: Figure, target: Path, **options: object) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", die)
    with pytest.raises(KeyboardInterrupt):
        save_figure(figure(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_size_follows_the_dots_and_the_version_of_the_library_is_left_out(tmp_path: Path) -> None:
    sizes = []
    for name, dpi in (("own", None), ("given", 150)):
        save_figure(figure(), tmp_path / name, dpi)
        content = (tmp_path / name).read_bytes()
        assert b"matplotlib" not in content.lower()
        sizes.append(int.from_bytes(content[16:20], "big"))
    assert sizes == [50, 150]


WRITES = r"\.savefig$|\.write_bytes$|^np\.savez?$|^torch\.save$"


def test_nothing_else_writes_drawings_or_bytes_under_their_final_name() -> None:
    """Calls only: a line that a reader is told to type is a string."""
    source = Path(exhume.__file__).parents[1]
    found = {
        str(path.relative_to(source))
        for package in ("exhume", "exhume_papers")
        for path in (source / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and re.search(WRITES, ast.unparse(node.func))
    }
    assert found == {"exhume/report/figure_file.py"}
