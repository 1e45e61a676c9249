"""What the attacker knew, as a tick-list, and what a reader must not take for tested."""

from typing import Any

from exhume.observation import Initial, Observation
from exhume.reconstruction import Reconstruction
from exhume.report.defences import not_audited
from exhume.report.numbers import plain


def not_tested(
    found: Reconstruction | None,
    observation: Observation,
    has_truth: bool,
    defences: list[str] | None,
    attempts: list[dict[str, Any]],
) -> list[str]:
    """What the reader must not take for tested. `defences` as `applied_defences` has them."""
    told = told_samples(found, observation)
    methods = list(dict.fromkeys(line["method"] for line in attempts if line["outcome"] is not None))
    seeds = sorted({line["seed"] for line in attempts if line["outcome"] is not None})
    gaps = ["Any attack: none could be run."]
    if methods:
        starts = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        gaps = [f"Attacks other than {' and '.join(methods)}, and other starts than {starts}."]
    gaps += [
        _other_layers(observation),
        "Membership inference, attribute inference, and attacks through the model's answers alone (black-box).",
        "Attackers who also hold public data of the same kind or a learned image prior.",
        not_audited(defences),
    ]
    if told is not None:
        gaps.append("An attacker who must find out the number of samples.")
    if not has_truth:
        gaps.append("The true training data were not there to compare with: single candidates may be wrong.")
    gaps.append("Samples with a very small coefficient leave hardly a trace in the weights and can be missed.")
    return gaps


def knowledge(found: Reconstruction | None, observation: Observation) -> list[dict[str, Any]]:
    """What the attacker had, as a tick-list."""
    told, norm = told_samples(found, observation), observation.knowledge.norm
    prior = _prior(found)
    return [
        _item(True, f"The trained weights ({observation.p:,} numbers; white-box, after training)"),
        _item(True, f"The features: {observation.features.description}"),
        _start(observation.knowledge.initial),
        _item(_knows_body(observation), "The layers before the head as they were before training"),
        _item(told is not None, "The number of training samples" + ("" if told is None else f" ({told:,})")),
        _item(norm is not None, "The norm of the training rows" + ("" if norm is None else f" ({plain(norm)})")),
        _item(observation.image_shape is not None, "The shape of the images (to display them)"),
        _item(prior is not None, "A prior on the data" + (f" ({prior})" if prior else "")),
        _item(False, "The labels"),
        _item(False, "Any training sample, or the seed that drew them"),
    ]


def _other_layers(observation: Observation) -> str:
    if observation.layers:
        return (
            f"Layers other than the head and {observation.layers[0].name}, and what several layers give away together."
        )
    if observation.initial_rows is None:
        return "Layers other than the head, and what several layers give away together."
    return "Layers other than the head and the first one, of which the change was used."


def _knows_body(observation: Observation) -> bool:
    known = observation.knowledge.initial_body or observation.initial_rows is not None
    return known or any(states.start is not None for states in observation.layers)


def _prior(found: Reconstruction | None) -> str | None:
    if found is None:
        return None
    told: str | None = found.settings.get("prior")
    if told not in (None, "none"):
        return told
    return "pictures have few edges" if found.facts.get("layout") else None


def told_samples(found: Reconstruction | None, observation: Observation) -> int | None:
    """The number of samples that this attack was told, which may be less than the observation holds."""
    if found is None:
        return None
    told: int | None = found.settings.get("samples", observation.knowledge.samples)
    return told


def _start(initial: Initial) -> dict[str, Any]:
    told = {
        "zero": "zero",
        "known": "known",
        "seed": "one of those that a known rule draws from a seed",
        "distribution": "no more than their distribution",
    }[initial]
    return _item(initial != "distribution", f"The weights before training ({told})")


def _item(known: bool, what: str) -> dict[str, Any]:
    return {"known": known, "what": what}
