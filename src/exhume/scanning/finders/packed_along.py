"""Tables, pictures, texts and archives that lie beside a model: packed along, on purpose or not."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from exhume.errors import ExhumeError
from exhume.formats.archive import open_archive
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, ScannedFile
from exhume.strict_json import parse_json

KINDS = {
    "tables": (
        ".csv",
        ".tsv",
        ".parquet",
        ".feather",
        ".arrow",
        ".xlsx",
        ".xls",
        ".sqlite",
        ".sqlite3",
        ".db",
        ".sas7bdat",
        ".dta",
    ),
    "texts, one record per line": (".jsonl", ".ndjson"),
    "data in a format for training": (".tfrecord", ".tfrecords", ".lmdb", ".mat", ".rec", ".idx"),
    "pictures": (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".dcm", ".nii"),
    "stores of vectors": (".faiss", ".annoy", ".hnsw", ".usearch"),
    "recordings": (".wav", ".mp3", ".flac", ".ogg", ".mp4", ".avi"),
}
WORDS = (
    "train",
    "training",
    "data",
    "dataset",
    "datasets",
    "records",
    "samples",
    "examples",
    "patients",
    "users",
    "predictions",
    "corpus",
    "chroma",
    "faiss",
)
"""In the name of a file or a folder: a table of results has none of them."""
KINDS_BY_WORD = {"texts": (".txt", ".json", ".xml"), "stores of vectors": (".index",)}
"""Of these most are something else: they count where one of the words is in the name of the file itself."""
NO_DATA = (
    "args",
    "arguments",
    "card",
    "config",
    "configs",
    "history",
    "info",
    "infos",
    "log",
    "logs",
    "metadata",
    "metrics",
    "params",
    "requirements",
    "results",
    "schema",
    "settings",
    "state",
    "stats",
    "summary",
)
"""What is told of training beside it: train_results.json, dataset_info.json."""
MOST_SETTINGS = 2**14  # bytes
ARCHIVES = (".tar", ".tgz", ".gz", ".zip", ".7z", ".rar", ".bz2", ".xz", ".zst")
DRAWN = ("logo", "banner", "figure", "fig", "plot", "curve", "confusion", "architecture", "diagram", "screenshot")
"""Pictures of something else."""


def find(inventory: Inventory) -> Iterator[Finding]:
    found: dict[tuple[str, str], list[ScannedFile]] = {}
    for file in inventory.files:
        if file.contents is not None or file.kind is not None or file.size == 0:
            continue
        if file.suffix in ARCHIVES and file.kind is None:
            yield from _archive(file)
        kind = _kind(file.suffix) or _kind_by_word(file)
        if kind is not None and not (kind == "pictures" and any(word in file.path.stem.lower() for word in DRAWN)):
            folder = PurePosixPath(file.name).parent.as_posix()
            found.setdefault((kind, folder), []).append(file)
    for (kind, folder), files in sorted(found.items()):
        yield _finding(kind, folder, files)


def _finding(kind: str, folder: str, files: list[ScannedFile]) -> Finding:
    words = {word for file in files for word in _words(file.name)}
    likely = bool(words & set(WORDS)) and not all(map(_names_alone, files))
    certainty = Certainty.LIKELY if likely else Certainty.POSSIBLE
    where = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1:,} more"
    several = "s" if len(files) > 1 else ""
    return Finding(
        rule="packed-along",
        holds=Holds.RECORDS if certainty is Certainty.LIKELY else Holds.LEAD,
        certainty=certainty,
        what=f"{len(files):,} file{several} of {kind} ({sum(file.size for file in files):,} bytes)",
        where=where,
        gives_away="records as they are, if they are of the training set",
        remedy="look at them, and leave out what was trained on",
        attack="none is needed: open them",
    )


def _names_alone(file: ScannedFile) -> bool:
    """Whether a table is one line without a number: the names of its columns, as far as anybody can tell."""
    if file.suffix not in (".csv", ".tsv") or file.size > MOST_SETTINGS:
        return False
    line, _, rest = file.path.read_text(errors="replace").strip().partition("\n")
    return not rest and not re.search(r"(^|[,;\t])\s*\"?[-+.\d]", line)


def _archive(file: ScannedFile) -> Iterator[Finding]:
    inside = ""
    if file.suffix == ".zip":
        try:
            with open_archive(file.path) as archive:
                data = [name for name in archive.entries if _kind(PurePosixPath(name).suffix.lower())]
                inside = f" with {len(data):,} files of data among {len(archive.entries):,}"
        except ExhumeError as problem:
            inside = f" that cannot be listed ({str(problem).partition('found ')[2][:60]})"
    yield Finding(
        rule="archive",
        holds=Holds.LEAD,
        certainty=Certainty.POSSIBLE,
        what=f"an archive{inside}",
        where=file.name,
        gives_away="whatever was packed into it: it was not unpacked",
        remedy="unpack it and scan the folder, or leave it out",
        attack="none is needed: unpack it",
    )


def _kind_by_word(file: ScannedFile) -> str | None:
    words = _words(file.path.stem)
    if not words & set(WORDS) or words & set(NO_DATA):
        return None
    kind = next((kind for kind, suffixes in KINDS_BY_WORD.items() if file.suffix in suffixes), None)
    return None if kind is None or _settings(file) else kind


def _settings(file: ScannedFile) -> bool:
    """Whether it is one JSON object of single values, {"lr": 0.1, "epochs": 3}: no place for records."""
    if file.suffix != ".json" or file.size > MOST_SETTINGS:
        return False
    try:
        value = parse_json(file.path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and not any(isinstance(item, dict | list) for item in value.values())


def _words(name: str) -> set[str]:
    return set(re.split(r"[\W_\d]+", name.lower()))


def _kind(suffix: str) -> str | None:
    return next((kind for kind, suffixes in KINDS.items() if suffix in suffixes), None)
