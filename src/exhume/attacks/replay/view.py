"""The whole network at both ends of its training, from an observation that was read from a file.

Such an observation has the layers before the head at both ends, if their features are taken halfway, and the head.
"""

from dataclasses import replace

from exhume.features.gradient import whole_module
from exhume.features.module import ModuleFeatures
from exhume.network_ends import NetworkEnds
from exhume.observation import Observation


def with_ends(observation: Observation) -> Observation:
    """The same observation with its ends, where it tells them."""
    features, head = observation.features, observation.head
    if observation.ends is not None or head is None or not isinstance(features, ModuleFeatures):
        return observation
    if len(features.networks) < 2 or features.chosen is not None:
        return observation
    first, last = features.networks[0], features.networks[-1]
    ends = NetworkEnds(whole_module(first, head - observation.weights), whole_module(last, head))
    return replace(observation, ends=ends)
