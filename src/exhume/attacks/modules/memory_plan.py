"""How much memory an attack on a network takes, and so how many candidates it records at a time.

With m candidates in d dimensions, p features and k outputs an attack holds, besides the process and the network,

    m p (features, in both precisions, and cotangents)  +  k p (weights and residuals)  +  m d (pairs of L-BFGS)

and, for as many candidates as are recorded at a time, what autograd keeps of one of them: measured on two rows.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.single_layer.memory_plan import FEWEST, PROCESS_BYTES
from exhume.features.module import ModuleFeatures
from exhume.observation import Observation

FEATURE_BYTES = 40  # of one number of G: itself, three copies in float64 on the way, cotangents
OUTPUT_BYTES = 40
CANDIDATE_NUMBERS = 64  # of one number of a candidate: L-BFGS keeps twenty pairs
RECORDS = 2.5  # records at a time: one is kept while the next is made, and sweeps back need as much for a while
MOST_EXCESS = 1.75


@dataclass(frozen=True)
class NetworkSizes:
    d: int
    p: int
    outputs: int
    itemsize: int
    samples: int | None
    network_bytes: int
    row_bytes: int
    """What autograd keeps of one row."""

    @classmethod
    def of(cls, observation: Observation, dtype: torch.dtype) -> "NetworkSizes":
        features = observation.network
        tensors = {} if features.source is None else features.source.tensors()
        network = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        samples, outputs = observation.knowledge.samples, len(observation.weights)
        return cls(features.d, features.p, outputs, dtype.itemsize, samples, network, recorded_bytes(features, dtype))

    @property
    def candidates(self) -> int:
        """The most where their number is given, otherwise the least to begin with."""
        return FEWEST if self.samples is None else max(self.samples + 3, math.ceil(MOST_EXCESS * self.samples))

    @property
    def fixed_bytes(self) -> int:
        """The process, the network (as it was read, as it is called, as it may be cast), weights."""
        return PROCESS_BYTES + 3 * self.network_bytes + OUTPUT_BYTES * self.outputs * self.p

    @property
    def candidate_bytes(self) -> int:
        return FEATURE_BYTES * self.p + CANDIDATE_NUMBERS * self.itemsize * self.d

    @property
    def record_bytes(self) -> int:
        return math.ceil(RECORDS * self.row_bytes)

    @property
    def least_bytes(self) -> int:
        """The smallest budget: one candidate recorded at a time."""
        return self.fixed_bytes + self.candidates * self.candidate_bytes + self.record_bytes


@dataclass(frozen=True)
class NetworkMemoryPlan:
    """How many candidates there is room for, and how many of them are recorded at a time."""

    candidates: int
    chunk: int


def network_room(sizes: NetworkSizes, memory_bytes: int, chunk: int) -> NetworkMemoryPlan:
    """As large a chunk as fits beside the candidates; where their number is not given, more of them with the rest."""
    free = max(0, memory_bytes - sizes.fixed_bytes)
    beside = max(0, free - sizes.candidates * sizes.candidate_bytes)
    if sizes.samples is None:
        beside //= 2
    recorded = max(1, min(chunk, beside // max(sizes.record_bytes, 1)))
    rest = free - recorded * sizes.record_bytes
    return NetworkMemoryPlan(max(sizes.candidates, rest // sizes.candidate_bytes), recorded)


def recorded_bytes(features: ModuleFeatures, dtype: torch.dtype) -> int:
    """What autograd keeps for one more row. Weights, which are kept once for all rows, drop out of the difference."""
    return max(0, _kept_bytes(features, 2, dtype) - _kept_bytes(features, 1, dtype))


def _kept_bytes(features: ModuleFeatures, rows: int, dtype: torch.dtype) -> int:
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    stream = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, features.d, generator=stream).to(device=features.device, dtype=dtype)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), torch.enable_grad():
        values = features.evaluate(inputs.requires_grad_())
    return sum(kept.values()) + values.numel() * values.element_size()
