"""What a model's folder says of its network and its training, as far as it is JSON: an activation, and what to give.

`config.json` is that of transformers; `training_args.json` is what its TrainingArguments write as JSON. A
`training_args.bin` is a pickle with code, and stays closed.
"""

from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.formats.json_file import read_json_object
from exhume.formats.links import own_file

CONFIG = "config.json"
TRAINING = ("training_args.json", "train_args.json", "args.json")
PICKLED = "training_args.bin"
KEYS = ("hidden_act", "hidden_activation", "activation_function", "activation")
ACTIVATIONS = {
    **{name: name for name in ("relu", "tanh", "gelu", "sigmoid", "silu", "leaky_relu", "relu6", "elu", "softplus")},
    "swish": "silu",
    "linear": "linear",
}
"""By their names in transformers; gelu_new and its like are other functions."""
LONGEST = 40


def configured_activation(path: Path) -> str | None:
    """The activation that config.json names, if it is one of exhume's."""
    named = _named(path)
    return None if named is None else ACTIVATIONS.get(named)


def training_notes(path: Path) -> tuple[str, ...]:
    """One sentence for each file that says something of the training, and what to give because of it."""
    if not path.is_dir():
        return ()
    notes = []
    named = _named(path)
    if named is not None and named not in ACTIVATIONS:
        notes.append(f"{CONFIG} says the activation {named!r}, which is none of exhume's.")
    for name in (file for file in TRAINING if (path / file).is_file()):
        given = _read(path, name)
        if given is None:
            notes.append(f"{name} was not used: it is no JSON object of the folder's own.")
        elif found := _of_training(given):
            notes.append(f"{name} says: {'; '.join(found)}.")
    if (path / PICKLED).is_file():
        notes.append(
            f"{PICKLED} is a pickle with code, and was not read: what TrainingArguments.to_json_string() gives, as "
            f"{TRAINING[0]}, would be."
        )
    return tuple(notes)


def _named(path: Path) -> str | None:
    given = _read(path, CONFIG) if path.is_dir() and (path / CONFIG).is_file() else None
    value = None if given is None else next((given[key] for key in KEYS if given.get(key) is not None), None)
    return value.lower() if isinstance(value, str) and value.isprintable() and len(value) <= LONGEST else None


def _read(path: Path, name: str) -> dict[str, Any] | None:
    """A folder's settings are a help, and never a reason to stop."""
    try:
        return read_json_object(own_file(path, name))
    except ExhumeError:
        return None


def _of_training(given: dict[str, Any]) -> list[str]:
    found = []
    seed, decay = given.get("seed"), given.get("weight_decay")
    optimiser = given.get("optim", given.get("optimizer"))
    recipe = []
    if type(seed) is int and 0 <= seed < 2**63:
        found.append(f"seed {seed} (where the start was drawn straight after it, give --initial-seed {seed})")
    if isinstance(optimiser, str) and optimiser.isprintable() and len(optimiser) <= LONGEST:
        found.append(f"optimiser {optimiser}")
        recipe += ["adam"] if "ada" in optimiser.lower() else ["sgd"] if "sgd" in optimiser.lower() else []
    if isinstance(decay, int | float) and not isinstance(decay, bool) and 0 < decay < 1:
        found.append(f"weight decay {decay:g}")
        recipe.append("weight-decay")
    if recipe:
        found.append(f"give --recipe {','.join(recipe)}")
    return found
