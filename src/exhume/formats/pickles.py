"""Pickles are programs. They are not run here: their instructions are read as text, for the names and words in them.

Enough to say what a file is and what it probably holds, and never enough to get it out: for that somebody who trusts it
converts it, with the line that the refusal gives.
"""

import io
import pickletools
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError

MOST_BYTES = 16 * 2**20
MOST_INSTRUCTIONS = 1_000_000
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_PLAIN = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT", *_TEXTS)
_BESIDE = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
"""Instructions that only remember what is there."""
_OF_TENSORS = re.compile(r"collections\.OrderedDict$|torch\._utils\.|torch\.\w+Storage$")
_NAMED = re.compile(rb"\x8c(.)([A-Za-z_]\w*)\x94\x93", re.DOTALL)
"""A name that is asked for, as its bytes are: its length, itself, to be remembered, to be looked up."""


@dataclass(frozen=True)
class Program:
    """What a pickle would import, the words in it, and the plain value that follows a word, if any does."""

    names: tuple[str, ...]
    words: frozenset[str]
    pairs: dict[str, Any]
    whole: bool


def read_program(content: bytes) -> Program:
    """
    >>> import pickle
    >>> read_program(pickle.dumps({"seed": 3})).pairs
    {'seed': 3}
    """
    content = _unpacked(content)[:MOST_BYTES]
    file = io.BytesIO(content)
    names: dict[str, None] = {}
    words: set[str] = set()
    pairs: dict[str, Any] = {}
    recent: list[str] = []
    waiting: str | None = None
    instructions, whole = 0, True
    try:
        while file.tell() < len(content):  # several pickles may follow each other
            for code, argument, _ in pickletools.genops(file):
                instructions += 1
                if instructions > MOST_INSTRUCTIONS:
                    raise ValueError("more instructions than are read")
                if code.name in ("GLOBAL", "INST"):
                    names[str(argument).replace(" ", ".")] = None
                elif code.name == "STACK_GLOBAL" and len(recent) >= 2:
                    names[f"{recent[-2]}.{recent[-1]}"] = None
                if code.name in _BESIDE:
                    continue
                if waiting is not None and code.name in _PLAIN:
                    pairs.setdefault(waiting, argument)
                waiting = None
                if code.name in _TEXTS:
                    text = str(argument)
                    words.add(text)
                    recent = [*recent[-1:], text]
                    waiting = text
    except Exception:  # raw arrays between the instructions, as joblib writes them, or damage: what was read counts
        whole = False
        names |= dict.fromkeys(
            found[2].decode() for found in _NAMED.finditer(content, file.tell()) if found[1][0] == len(found[2])
        )
    return Program(tuple(names), frozenset(words), pairs, whole)


def _unpacked(content: bytes) -> bytes:
    """What joblib packed with zlib or gzip, no more of it than is read."""
    if not content.startswith((b"x", b"\x1f\x8b")):
        return content
    try:
        return zlib.decompressobj(wbits=47).decompress(content, MOST_BYTES)
    except zlib.error:
        return content


def is_pickle(start: bytes) -> bool:
    """Whether a file begins as a pickle of protocol 2 or later does, perhaps compressed as joblib does it."""
    return len(start) > 1 and start[0] == 0x80 and 2 <= start[1] <= 5


def refuse_pickle(path: Path, names: tuple[str, ...]) -> ExhumeError:
    """With the one line that converts it, by what it holds."""
    return ExhumeError(
        f"expected a file that holds no code at {path}, found a pickle, and it was not run; {way_out(path, names)}"
    )


def way_out(path: Path, names: tuple[str, ...]) -> str:
    """The line that converts a pickle, for somebody who trusts it.

    >>> way_out(Path("m.joblib"), ("sklearn.svm._classes.SVC",)).rpartition(": ")[2]
    'skops.io.dump(joblib.load("m.joblib"), "m.skops")'
    >>> way_out(Path("m.pkl"), ("pandas.DataFrame",)).rpartition(": ")[2]
    'pandas.read_pickle("m.pkl").to_parquet("m.parquet")'
    """
    trusted, new = "where you trust it", path.stem
    if names and all(_OF_TENSORS.match(name) for name in names):
        return f'save it again: torch.save(torch.load("{path.name}", weights_only=True), "{new}.new.pt")'
    if any(name.startswith("pandas.") for name in names) and not any(name.startswith("sklearn.") for name in names):
        return f'{trusted}: pandas.read_pickle("{path.name}").to_parquet("{new}.parquet")'
    if any(name.startswith("torch") for name in names):
        state = f'torch.load("{path.name}", weights_only=False).state_dict()'
        return f'{trusted}: safetensors.torch.save_file({state}, "{new}.safetensors")'
    by_joblib = path.suffix in (".joblib", ".gz", ".z") or any(name.startswith("joblib") for name in names)
    loaded = f'joblib.load("{path.name}")' if by_joblib else f'pickle.load(open("{path.name}", "rb"))'
    return f'{trusted}: skops.io.dump({loaded}, "{new}.skops")'
