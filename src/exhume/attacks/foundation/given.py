"""What an attack was given and made use of, by kind: its case says so, and the page lists it."""

from typing import Literal

from exhume.observation import Observation

Kind = Literal[
    "weights",
    "features",
    "initial",
    "body",
    "layer",
    "samples",
    "norm",
    "shape",
    "prior",
    "subspace",
    "labels",
    "records",
    "recipe",
]
Given = dict[Kind, str]
"""Kinds that were made use of, each with a detail in words. A kind that is not there played no part."""
INITIAL = {"zero": "zero", "known": "known", "seed": "one of those that a known rule draws from a seed"}


def of_the_head(observation: Observation) -> Given:
    """What every attack on the weights of the last layer reads of an observation."""
    knowledge = observation.knowledge
    given: Given = {"weights": f"{observation.p:,} numbers", "features": observation.features.description}
    if any(layer.source == "stationary" for layer in observation.layers):
        given["initial"] = "not needed: the weights are at rest"
    elif knowledge.initial in INITIAL:
        given["initial"] = INITIAL[knowledge.initial]
    if knowledge.initial_body:
        given["body"] = "the features are taken halfway"
    return given | of_the_samples(observation)


def of_the_samples(observation: Observation) -> Given:
    """What is known of the samples themselves, which most attacks make use of."""
    samples, norm = observation.knowledge.samples, observation.knowledge.norm
    given: Given = {} if samples is None else {"samples": f"{samples:,}"}
    return given if norm is None else given | {"norm": f"{norm:.6g}"}


def with_smooth_pictures(given: Given, image_shape: tuple[int, int, int] | None) -> Given:
    """For searches that try smooth pictures first."""
    return given if image_shape is None else given | {"shape": "smooth pictures are tried first"}
