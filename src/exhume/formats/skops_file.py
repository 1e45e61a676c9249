"""scikit-learn models as skops writes them: a zip archive with `schema.json` and the arrays.

skops itself is never asked to load: it would import the classes that the file names. The schema is a tree of nodes,
each with `__module__`, `__class__` and `__loader__`; what the values of an estimator are is all that is taken from it.
"""

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import ExhumeError
from exhume.formats.archive import DEFLATE_RATIO, Archive, open_archive
from exhume.formats.contents import Contents, StoredArray, StoredObject
from exhume.formats.json_file import parse_object
from exhume.formats.npy import LARGEST_ENTRY, array_of, packed_array

SCHEMA = "schema.json"
LARGEST_SCHEMA = 256 * 2**20
DEEPEST = 100
MOST_DENSE = 2**28
"""Numbers of a sparse matrix that is written out."""
_LISTS = ("ListNode", "TupleNode", "SetNode")
_DICTS = ("DictNode", "DefaultDictNode", "_DictWithDeprecatedKeysNode")
_SKIPPED = ("TypeNode", "FunctionNode", "MethodNode", "OperatorFuncNode", "SliceNode", "DTypeNode", "PartialNode")
_SPARSE_FORMATS = ("csr", "csc", "coo")


def read_skops(path: Path) -> Contents:
    with open_archive(path) as archive:
        schema = parse_object(archive.read(SCHEMA, LARGEST_SCHEMA), f"{SCHEMA} of {path}")
        reader = _Schema(archive)
        try:
            reader.value(schema, "", 0)
        except RecursionError as problem:
            raise ExhumeError(f"expected at most {DEEPEST} levels in {path}, found more") from problem
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            found = " ".join(str(problem).split())[:120]
            raise ExhumeError(f"expected a schema as skops writes it in {path}, found damage at {found}") from problem
    arrays = {found.name: found for found in reader.arrays}
    version = schema.get("_skops_version")
    values = {"skops_version": version} if isinstance(version, str) else {}
    return Contents("skops", arrays, tuple(reader.objects), values)


class _Schema:
    """Walks the nodes once, from the root to the leaves."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._built: dict[Any, Any] = {}
        self.objects: list[StoredObject] = []
        self.arrays: list[StoredArray] = []

    def value(self, node: Any, where: str, depth: int) -> Any:
        if depth > DEEPEST:
            raise ExhumeError(f"expected at most {DEEPEST} levels in {self._archive.path}, found more")
        loader, content = node["__loader__"], node.get("content")
        if loader == "CachedNode":  # what was read before under that number; itself, where it is not read yet
            if node["__id__"] not in self._built:
                raise ValueError("a node that refers to one that has not been read: a loop")
            return self._built[node["__id__"]]
        built = self._new_value(node, loader, content, where, depth)
        if "__id__" in node:
            self._built[node["__id__"]] = built
        return built

    def _new_value(self, node: Any, loader: str, content: Any, where: str, depth: int) -> Any:
        if loader == "JsonNode":
            return json.loads(content)
        if loader == "NdArrayNode":
            return self._array(node, where, depth)
        if loader == "SparseMatrixNode":
            return self._sparse(node["file"], where)
        if loader in _LISTS:
            return [self.value(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(content)]
        if loader in _DICTS:
            inner = content["main"]["content"] if loader == "DefaultDictNode" and "main" in content else content
            return {str(key): self.value(item, _below(where, key), depth + 1) for key, item in inner.items()}
        if loader in _SKIPPED or content is None:
            return None
        return self._object(node, content, where, depth)

    def _object(self, node: Any, content: Any, where: str, depth: int) -> StoredObject:
        kind = f"{node['__module__']}.{node['__class__']}"[:200]
        if not kind.isprintable():
            raise ValueError("the name of a class that cannot be printed")
        if "__loader__" in content:
            members = self.value(content, where, depth + 1)
        else:  # several parts, e.g. the arguments and the state of a tree
            members = {
                str(key): self.value(item, _below(where, key), depth + 1)
                for key, item in content.items()
                if isinstance(item, dict) and "__loader__" in item
            }
        built = StoredObject(where, kind, members if isinstance(members, dict) else {"content": members})
        self.objects.append(built)
        return built

    def _array(self, node: Any, where: str, depth: int) -> Any:
        if node["type"] == "json":  # an array of objects: a list of nodes
            return [self.value(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(node["content"])]
        found = packed_array(self._archive, self._entry(node["file"]), where or "values")
        if found.shape == () and found.dtype != "object":  # a single number
            return found.read().item()
        self.arrays.append(found)
        return found

    def _entry(self, name: Any) -> str:
        if not isinstance(name, str) or name not in self._archive.entries:
            raise ExhumeError(f"expected an array {str(name)[:80]!r} in {self._archive.path}, found no such entry")
        return name

    def _sparse(self, name: Any, where: str) -> StoredArray | None:
        entry, path = self._entry(name), self._archive.path
        parts = _arrays_inside(self._archive, entry)
        shape = parts.get("shape")
        if "format" not in parts or shape is None or shape.shape != (2,) or shape.dtype.kind not in "iu":
            raise ExhumeError(f"expected a sparse matrix in {entry} of {path}, found none")
        size = (int(shape[0]), int(shape[1]))

        def read() -> np.ndarray:
            with open_archive(path) as again:
                return _dense(_arrays_inside(again, entry), size, path)

        found = StoredArray(where or "values", size, "sparse", read)
        self.arrays.append(found)
        return found


def _arrays_inside(archive: Archive, entry: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz that is an entry of another archive."""
    content = archive.read(entry, LARGEST_ENTRY)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as inner:
            listed = inner.infolist()
            if sum(part.file_size for part in listed) > DEFLATE_RATIO * len(content):
                raise ExhumeError(f"expected {entry} of {archive.path} to be what it claims, found that it cannot")
            return {part.filename.removesuffix(".npy"): array_of(inner.read(part), part.filename) for part in listed}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as problem:
        raise ExhumeError(f"expected a whole .npz inside {archive.path}, found: {problem}") from problem


def _dense(parts: dict[str, np.ndarray], shape: tuple[int, int], path: Path) -> np.ndarray:
    """A sparse matrix written out, where its parts agree with each other."""
    from scipy import sparse

    kind = parts["format"].item()
    name = kind.decode() if isinstance(kind, bytes) else str(kind)
    if name not in _SPARSE_FORMATS or min(shape) < 0 or shape[0] * shape[1] > MOST_DENSE:
        raise ExhumeError(f"expected a sparse matrix that can be written out in {path}, found {name} {shape}")
    try:
        if name == "coo":
            made = sparse.coo_array((parts["data"], (parts["row"], parts["col"])), shape=shape)
        else:
            build = sparse.csr_array if name == "csr" else sparse.csc_array
            made = build((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
            made.check_format(full_check=True)
        return np.asarray(made.toarray())
    except (ValueError, KeyError, TypeError, IndexError) as problem:
        raise ExhumeError(f"expected a whole sparse matrix in {path}, found: {problem}") from problem


def _below(where: str, key: Any) -> str:
    word = str(key)[:80]
    word = word if word.isprintable() else repr(word)
    return f"{where}.{word}" if where else word
