"""The start of training: a seed that draws it again, the weights themselves, or a public model that anybody has."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from exhume.errors import ExhumeError
from exhume.formats.json_file import read_json_value
from exhume.private_paths import without_folders
from exhume.regular_file import regular
from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory, ScannedFile, Unread

SEEDS = ("seed", "random_seed", "manual_seed", "torch_seed", "rng_seed", "data_seed", "global_seed", "seed_everything")
STREAMS = ("rng_state", "torch_rng_state", "cpu_rng_state", "random_rng_state", "np_rng_state", "rng_states")
INITIAL = (
    "init",
    "initial",
    "init_state_dict",
    "initial_state_dict",
    "initial_weights",
    "model_init",
    "state_dict_init",
)
NETWORKS = ("MLPClassifier", "MLPRegressor")
_SETTINGS = (".json", ".yaml", ".yml", ".toml", ".cfg", ".ini")
_LINE = re.compile(rf"^\s*[\"']?({'|'.join(SEEDS)})[\"']?\s*[:=]\s*(\d+)\b", re.MULTILINE | re.IGNORECASE)
_FIRST_FILE = re.compile(
    r"(^|[-_./])(init|initial|initialization|before|step[-_]?0+|epoch[-_]?0+|checkpoint-0+)([-_./]|$)"
)
LARGEST_SETTINGS = 2**20
"""So many characters of settings are searched for a seed."""


def find(inventory: Inventory) -> Iterator[Finding | Unread]:
    for file, contents in inventory.models:
        for name, value in contents.values.items():
            if name.rpartition(".")[2].lower() in SEEDS and type(value) is int:
                yield _seed(value, f"{file.name}: {name}", Certainty.CERTAIN)
        for network in contents.objects_of(*NETWORKS):
            if type(network.members.get("random_state")) is int:
                where = f"{file.name}: {network.where or network.class_name}.random_state"
                again = "draw fit's first weights again from random_state; then exhume audit --initial FIRST"
                yield replace(_seed(network.members["random_state"], where, Certainty.CERTAIN), attack=again)
        heads = {part for name in contents.arrays for part in name.split(".")[:1]}
        for key in sorted(heads & set(INITIAL)):
            yield _weights(f"weights under the name {key!r} beside others", f"{file.name}: {key}", Certainty.LIKELY)
        if heads & set(STREAMS):
            yield _stream(file.name)
    models = [file for file, _ in inventory.models]
    for file in models:
        if len(models) > 1 and named_first(file.name):
            yield _weights("a file named as a first state, beside others", file.name, Certainty.LIKELY)
    for file in inventory.files:
        yield from _beside(file)


def named_first(name: str) -> bool:
    """Whether a file is called as what training began with."""
    return _FIRST_FILE.search(name.lower()) is not None


def _beside(file: ScannedFile) -> Iterator[Finding | Unread]:
    """Settings that lie beside a model: JSON, YAML and the like as text, pickles as words."""
    if file.program is not None:
        for word in SEEDS:
            if type(file.program.pairs.get(word)) is int:
                yield _seed(file.program.pairs[word], f"{file.name}: {word}", Certainty.LIKELY)
    if file.path.name.startswith(("rng_state", "random_states")):
        yield _stream(file.name)
    if file.suffix in _SETTINGS and file.contents is None and file.size:
        if file.path.name in ("config.json", "adapter_config.json"):
            yield from _base(file)
        try:
            with regular(file.path).open(encoding="utf-8", errors="replace") as opened:
                text = opened.read(LARGEST_SETTINGS)
        except OSError as problem:
            yield Unread(file.name, f"could not be opened: {problem.strerror}")
            return
        seeds = dict.fromkeys((name.lower(), int(value)) for name, value in _LINE.findall(text))
        for name, value in seeds:
            yield _seed(value, f"{file.name}: {name}", Certainty.LIKELY)


def _base(file: ScannedFile) -> Iterator[Finding | Unread]:
    try:
        content = read_json_value(file.path)
    except ExhumeError as problem:
        yield Unread(file.name, without_folders(str(problem)))
        return
    settings: Mapping[str, Any] = content if isinstance(content, dict) else {}
    base = settings.get("base_model_name_or_path") or settings.get("_name_or_path")
    if isinstance(base, str) and base.strip():
        shown = base.rstrip("/").rpartition("/")[2] if base.startswith(("/", "~", ".")) else base
        adapter = "peft_type" in settings
        yield Finding(
            rule="public-start",
            holds=Holds.LEAD,
            certainty=Certainty.CERTAIN if adapter else Certainty.LIKELY,
            what=f"the name of the model that training began with ({shown[:80]!r})"
            + (f", and an adapter of kind {str(settings['peft_type'])[:20]}" if adapter else ""),
            where=file.name,
            gives_away="the change that fine-tuning made, exactly: whoever has the first model knows the start"
            + ("; an adapter is that change" if adapter else ""),
            remedy="count on it being known; leave the name out if it is private",
            attack="exhume rank on heads; exhume audit --initial BASE where dense layers were trained",
        )


def _seed(value: int, where: str, certainty: Certainty) -> Finding:
    return Finding(
        rule="seed",
        holds=Holds.LEAD,
        certainty=certainty,
        what=f"a seed of training ({value})",
        where=where,
        gives_away="the weights before training, for whoever has the code: the seed draws them again",
        remedy="train with a seed that is drawn and not kept",
        attack=f"exhume audit --initial-seed {value}; seeds below 100,000 are found without it (--initial-seed-search)",
    )


def _stream(where: str) -> Finding:
    return Finding(
        rule="random-state",
        holds=Holds.LEAD,
        certainty=Certainty.LIKELY,
        what="the state of a random number generator",
        where=where,
        gives_away="which order and which augmentation the next steps would have; of some generators the past as well",
        remedy="delete it: it is for resuming training only",
        attack="none yet",
    )


def _weights(what: str, where: str, certainty: Certainty) -> Finding:
    return Finding(
        rule="initial-weights",
        holds=Holds.LEAD,
        certainty=certainty,
        what=what,
        where=where,
        gives_away="the weights before training: the change of every layer is then known",
        remedy="delete them",
        attack="exhume audit --initial FILE: silent units and the span of the features",
    )
