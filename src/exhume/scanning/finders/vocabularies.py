"""Words that a model was made to know: those of its training texts, unless they came with a public model."""

from collections.abc import Iterator
from typing import Any

from exhume.errors import ExhumeError
from exhume.formats.contents import StoredArray
from exhume.formats.json_file import read_json_value
from exhume.private_paths import without_folders
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, Unread

VECTORISERS = {
    "CountVectorizer": "vocabulary_",
    "TfidfVectorizer": "vocabulary_",
    "DictVectorizer": "vocabulary_",
    "TfIdfVectorizer": "pool_strings",
    "StringNormalizer": "stopwords",
}
TOKENISERS = ("vocab.json", "vocab.txt", "tokenizer.json", "merges.txt", "spiece.model", "tokenizer.model", "vocab.bpe")
ADDED = "added_tokens.json"


def find(inventory: Inventory) -> Iterator[Finding | Unread]:
    for file, contents in inventory.models:
        for model in contents.objects_of(*VECTORISERS):
            attribute = VECTORISERS[model.class_name]
            count = _count(model.members.get(attribute))
            if count and model.class_name != "StringNormalizer":
                where = f"{file.name}: {model.where or model.class_name}.{attribute}"
                yield _words(count, model.class_name, where, Certainty.CERTAIN)
        for layer in contents.objects_of("TextVectorization", "StringLookup", "IntegerLookup"):
            count = _count(layer.members["settings"].get("vocabulary"))
            if count:
                yield _words(count, f"Keras {layer.class_name}", f"{file.name}: {layer.where}", Certainty.CERTAIN)
        for asset in contents.values.get("beside", ()):  # of a .keras archive
            if "vocabulary" in asset.rpartition("/")[2]:
                yield _words(None, "a file of a Keras layer", f"{file.name}: {asset}", Certainty.LIKELY)
    for file in inventory.files:
        name = file.path.name
        if name == ADDED:
            try:
                count = _count(read_json_value(file.path))
            except ExhumeError as problem:
                yield Unread(file.name, without_folders(str(problem)))
                continue
            if count:
                yield _words(count, "tokens that were added to a tokeniser", file.name, Certainty.LIKELY)
        elif name in TOKENISERS:
            yield _words(None, "a tokeniser", file.name, Certainty.POSSIBLE)


def _words(count: int | None, kind: str, where: str, certainty: Certainty) -> Finding:
    own = certainty is not Certainty.POSSIBLE
    return Finding(
        rule="vocabulary",
        holds=Holds.VALUES if own else Holds.LEAD,
        certainty=certainty,
        what=f"a vocabulary of {count:,} entries ({kind})" if count else f"a vocabulary ({kind})",
        where=where,
        gives_away="words of the training texts, rare ones included: names, addresses, codes"
        if own
        else "words of the training texts, if the tokeniser was made from them and did not come with a public model",
        remedy="set min_df so that a word needs many texts, hash words instead (HashingVectorizer), or take a public "
        "vocabulary",
        attack="none is needed: read it, and look for words that only a few texts have",
    )


def _count(values: Any) -> int:
    return values.numbers if isinstance(values, StoredArray) else len(values) if isinstance(values, list | dict) else 0
