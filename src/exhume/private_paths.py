"""Texts for other eyes: what they say about files, without the folders of this machine, which may name a user."""

import re
from pathlib import Path
from typing import Any

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


def without_folder(value: Any) -> Any:
    """A setting as others may see it: of an absolute path its last part, of anything else itself.

    >>> without_folder("/home/me/my photos"), without_folder("cifar10"), without_folder(0.5)
    ('my photos', 'cifar10', 0.5)
    """
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
