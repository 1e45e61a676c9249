"""Texts for other eyes: what they say about files, without the folders of this machine, which may name a user."""

import re
from pathlib import Path

_FOLDERS = re.compile(r"(?<![\w/.~-])(?:/(?:[^\s/'\",;]+/)+|~[\w.-]*/(?:[^\s/'\",;]+/)*)(?=[^\s/'\",;])")
"""An absolute path up to its last part. Not behind a slash: that is a web address."""


def without_folders(text: str, root: Path | None = None) -> str:
    """Absolute paths become the part below `root`, or else their last part.

    >>> without_folders("expected a file /home/me/photos/a.png, found none; see https://example.org/a/b", None)
    'expected a file a.png, found none; see https://example.org/a/b'
    >>> without_folders("found no /srv/sweep/runs/3/truth.safetensors", Path("/srv/sweep"))
    'found no runs/3/truth.safetensors'
    """
    if root is not None and root.is_absolute() and root != Path(root.anchor):
        text = text.replace(f"{root}/", "")
    return _FOLDERS.sub("", text)
