from pathlib import Path

import pytest

from exhume.private_paths import without_folders


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("expected a file '/home/me/a b/c.png'; found none", "expected a file 'a b/c.png'; found none"),
        ("FileNotFoundError: [Errno 2] No such file: /home/me/x", "FileNotFoundError: [Errno 2] No such file: x"),
        ("expected /data, found ~me/photos/cat.png and ~/dog.png", "expected /data, found cat.png and dog.png"),
        ("p / (dn) and and/or 1/2 and runs/3/a.json", "p / (dn) and and/or 1/2 and runs/3/a.json"),
        ("see https://example.org/some/page", "see https://example.org/some/page"),
        ("--out=/home/me/sweep/runs, (/srv/a/b)", "--out=runs, (b)"),
    ],
)
def test_absolute_paths_lose_their_folders_and_nothing_else_changes(text: str, expected: str) -> None:
    assert without_folders(text) == expected
    assert without_folders(expected) == expected


def test_what_is_below_the_root_keeps_its_place_in_it() -> None:
    text = "expected /home/me/sweep/runs/3/truth.safetensors from /home/me/other/4"
    assert without_folders(text, Path("/home/me/sweep")) == "expected runs/3/truth.safetensors from 4"
    assert without_folders(text, Path("/")) == without_folders(text, Path("relative")) == without_folders(text)
