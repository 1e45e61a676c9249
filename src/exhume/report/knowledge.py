"""What the attacker knew, as a tick-list, and what a reader must not take for tested."""

from typing import Any

from exhume.attacks.foundation.given import Given, Kind, of_the_head
from exhume.observation import Observation
from exhume.reconstruction import Reconstruction
from exhume.report.defences import not_audited


def not_tested(
    found: Reconstruction | None,
    observation: Observation,
    has_truth: bool,
    defences: list[str] | None,
    attempts: list[dict[str, Any]],
) -> list[str]:
    """What the reader must not take for tested. `defences` as `applied_defences` has them."""
    count = known_samples(found, observation)
    methods = list(dict.fromkeys(line["method"] for line in attempts if line["outcome"] is not None))
    seeds = sorted({line["seed"] for line in attempts if line["outcome"] is not None})
    gaps = ["Any attack: none could be run."]
    if methods:
        starts = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        gaps = [f"Attacks other than {' and '.join(methods)}, and other starts than {starts}."]
    gaps += [
        _other_layers(attempts),
        "Membership inference, attribute inference, and attacks through the model's answers alone (black-box).",
        _other_priors(found),
        not_audited(defences),
    ]
    if count is not None:
        gaps.append("An attacker who must find out the number of samples.")
    if not has_truth:
        gaps.append("The true training data were not there to compare with: single candidates may be wrong.")
    gaps.append("Samples with a very small coefficient leave hardly a trace in the weights and can be missed.")
    return gaps


_TITLES: dict[Kind, str] = {
    "weights": "The trained weights, white-box, after training",
    "features": "The features in front of them",
    "initial": "The weights of the last layer before training",
    "body": "The layers before the head as they were before training",
    "layer": "Another state of a layer, or an average of its gradients",
    "samples": "The number of training samples",
    "norm": "The norm of the training rows",
    "shape": "The shape of the images",
    "prior": "A prior on the data",
    "subspace": "A subspace that the data lie in",
    "labels": "The labels",
    "records": "Any training sample, or the seed that drew them",
    "recipe": "The recipe of the training",
}


def knowledge(found: Reconstruction | None, observation: Observation) -> list[dict[str, Any]]:
    """What the attacker had, as a tick-list: what the attack recorded that it was given and made use of."""
    given = {} if found is None else dict(found.given)
    if not given:
        given = {str(kind): detail for kind, detail in _as_known(found, observation).items()}
    if observation.image_shape is not None:
        given.setdefault("shape", "to display them")
    return [_item(kind in given, title, given.get(kind, "")) for kind, title in _TITLES.items()]


def _as_known(found: Reconstruction | None, observation: Observation) -> Given:
    """For attacks that left no record: what the observation says, and the settings and facts of the attack."""
    given = of_the_head(observation.knowing(known_samples(found, observation)))
    if observation.initial_rows is not None:
        given["body"] = "the first layer"
    if found is not None and found.facts.get("prior"):
        given["prior"] = str(found.facts["prior"])
    return given


def _item(known: bool, title: str, detail: str) -> dict[str, Any]:
    return {"known": known, "what": f"{title} ({detail})" if detail else title}


def _other_priors(found: Reconstruction | None) -> str:
    used = None if found is None else found.given.get("prior")
    if used is None:
        return "Attackers who also hold public data of the same kind or a learned image prior."
    return f"Attackers who also hold a learned image prior, or another one than was used ({used})."


_PLACES = {"head": "the head", "first": "the first one"}


def _other_layers(attempts: list[dict[str, Any]]) -> str:
    """By the layers that attacks have read which ran, and whether one of them has read several together."""
    ran = [line.get("layers", ["head"]) for line in attempts if line["outcome"] is not None]
    read = list(dict.fromkeys(_PLACES.get(name, f"layer {name!r}") for layers in ran for name in sorted(layers)))
    together = any(len(layers) > 1 or "all" in layers for layers in ran)
    if any("all" in layers for layers in ran):
        return "Other attacks on what the layers give away together."
    if not read:
        return "Any layer."
    several = "" if together else ", and what several layers give away together"
    return f"Layers other than {' and '.join(read)}{several}."


def known_samples(found: Reconstruction | None, observation: Observation) -> int | None:
    """The number of samples that this attack was given, which may be less than the observation holds."""
    if found is None:
        return None
    count: int | None = found.settings.get("samples", observation.knowledge.samples)
    return count
