"""Which defences stood between the training data and this attack, in words, from what the run folder says of itself."""

import re
from typing import Any

from exhume.report.numbers import plain

_ROUNDED = {
    "fp16": "weights rounded to float16",
    "bf16": "weights rounded to bfloat16",
    "int8": "weights rounded to 8 bits",
    "int8-row": "weights rounded to 8 bits, one scale per output",
}
_COUNTED = {
    "prune": "{} % of the features pruned by the size of their weights",
    "obs": "{} % of the features pruned by Optimal Brain Surgeon",
    "noise": "Gaussian noise of {} times the weights' root mean square",
}


def applied_defences(config: dict[str, Any], summary: dict[str, Any]) -> list[str] | None:
    """What was done while training and before publishing; None where the run was not made here, so nobody knows."""
    if not config.get("victim"):
        return None
    model = dict(config.get("model") or {})
    recipe = dict(model.get("recipe") or {})
    found = []
    if model.get("ridge"):
        found.append(f"ridge penalty {plain(model['ridge'])}")
    if recipe.get("weight_decay"):
        found.append(f"weight decay {plain(recipe['weight_decay'])}")
    if summary.get("epsilon") is not None or model.get("privacy"):
        found.append(_privacy(summary))
    published = config.get("defence") or summary.get("defence")
    return found + [_published(part) for part in str(published).split("+")] if published else found


def _published(short: str) -> str:
    """
    >>> _published("int8"), _published("prune50"), _published("another")
    ('int8: weights rounded to 8 bits', 'prune50: 50 % of the features pruned by the size of their weights', 'another')
    """
    if short in _ROUNDED:
        return f"{short}: {_ROUNDED[short]}"
    name = re.fullmatch(r"([a-z]+)([0-9.e-]+)", short)
    return f"{short}: {_COUNTED[name[1]].format(name[2])}" if name and name[1] in _COUNTED else short


def _privacy(summary: dict[str, Any]) -> str:
    epsilon, delta = summary.get("epsilon"), summary.get("delta")
    if epsilon is None or delta is None:
        return "DP-SGD without a finite epsilon"
    return f"DP-SGD, epsilon {plain(epsilon)} at delta {plain(delta)}"


def not_audited(defences: list[str] | None) -> str:
    """What the attack says nothing of, as far as defences go."""
    if defences is None:
        return "Defences: whether any was applied is not known here."
    if not defences:
        return "Defences: none was applied, so none was audited again."
    return f"Defences other than those of this model ({'; '.join(defences)})."


def for_the_model_card(defences: list[str] | None) -> str:
    if not defences:
        return "No defence was applied." if defences == [] else "Defences of this model are not known."
    return f"Defences applied: {'; '.join(defences)}."
