"""How many rows of V, and how many candidates, fit into a budget of memory.

With r rows on a rank, m candidates in d dimensions and k outputs, an attack needs in units of one number

    r d (V, where it is held)  +  c m r (features, slopes and the like)  +  6 k r (weights and residuals)  +  8 m d

besides what the process takes before it begins. c counts the m × r matrices that live at the same time. Where the
number of samples is not given, there is room for m = k r / (2 d) candidates: half of what r rows could ever determine.
"""

import math
from dataclasses import dataclass

import torch

from exhume.attacks.foundation.ranks import Ranks
from exhume.features.rows import BLOCK_BYTES
from exhume.observation import Observation

PROCESS_BYTES = 400 * 2**20
"""Python, torch and what else is loaded before an attack begins; a third of it is shared libraries."""
MATRICES, GRADIENT_MATRICES = 8, 5
SNAPSHOT_BYTES = 256 * 2**20
FEWEST = 8
OVERSAMPLING = 1.25


@dataclass(frozen=True)
class Sizes:
    """The numbers that decide how much memory an attack takes. `few_rows`: a part of the rows will do."""

    rows: int
    d: int
    outputs: int
    itemsize: int
    samples: int | None
    few_rows: bool
    ranks: int = 1
    coarse: bool = False
    """Whether a second copy of V is held, in bfloat16."""

    @classmethod
    def of(
        cls, observation: Observation, rows: int, few_rows: bool, dtype: torch.dtype, coarse: bool, ranks: Ranks
    ) -> "Sizes":
        samples, outputs = observation.knowledge.samples, len(observation.weights)
        return cls(rows, observation.d, outputs, dtype.itemsize, samples, few_rows, ranks.size, coarse)

    @property
    def candidates(self) -> int:
        """The most that are looked at together, where their number is given; otherwise the least to begin with."""
        if self.samples is None:
            return FEWEST
        return max(self.samples + 2, round(OVERSAMPLING * self.samples)) if self.few_rows else self.samples

    @property
    def matrices(self) -> int:
        return MATRICES if self.few_rows else GRADIENT_MATRICES

    @property
    def own_rows(self) -> int:
        return math.ceil(self.rows / self.ranks)

    @property
    def fixed_bytes(self) -> int:
        """What does not depend on the rows: the process, blocks of V on the way, candidates and their snapshots."""
        candidates = self.candidates * self.d
        return PROCESS_BYTES + BLOCK_BYTES + 8 * self.itemsize * candidates + min(SNAPSHOT_BYTES, 96 * candidates)

    @property
    def held_row_bytes(self) -> int:
        return self.d * (self.itemsize + 2 * self.coarse)

    @property
    def output_row_bytes(self) -> int:
        return self.outputs * (6 * self.itemsize + 16)

    @property
    def candidate_row_bytes(self) -> int:
        """Of one candidate and one row."""
        return self.matrices * self.itemsize

    def needed_bytes(self, rows: int, held: bool) -> int:
        """What `rows` rows on each rank take."""
        row = self.output_row_bytes + self.candidate_row_bytes * self.candidates + held * self.held_row_bytes
        return self.fixed_bytes + rows * row


@dataclass(frozen=True)
class MemoryPlan:
    """The rows (of all ranks) that an attack may use, whether V is held, and how many candidates there is room for."""

    rows: int
    held: bool
    candidates: int | None = None


def room_for(sizes: Sizes, memory_bytes: int) -> MemoryPlan:
    """The plan that fits into a budget, or what comes nearest to it."""
    if not sizes.few_rows:
        return MemoryPlan(sizes.rows, sizes.needed_bytes(sizes.own_rows, held=True) <= memory_bytes)
    free = max(0, memory_bytes - sizes.fixed_bytes)
    own = max(1, min(sizes.own_rows, _rows_within(sizes, free)))
    spare = free - own * (sizes.held_row_bytes + sizes.output_row_bytes)
    most = max(FEWEST, sizes.candidates, int(spare // (own * sizes.candidate_row_bytes)))
    return MemoryPlan(min(sizes.rows, own * sizes.ranks), True, most)


def least_bytes(sizes: Sizes) -> int:
    """The smallest budget with which an attack can succeed: V streamed, or as many rows as there are unknowns."""
    if not sizes.few_rows:
        return sizes.needed_bytes(sizes.own_rows, held=False)
    unknowns = math.ceil(sizes.candidates * (sizes.d - 1 + sizes.outputs) / sizes.outputs)
    return sizes.needed_bytes(math.ceil(min(sizes.rows, unknowns) / sizes.ranks), held=True)


def _rows_within(sizes: Sizes, free: int) -> int:
    """The rows of one rank that fit into so many bytes: a quadratic where the candidates grow with the rows."""
    row = sizes.held_row_bytes + sizes.output_row_bytes
    if sizes.samples is not None:
        return int(free // (row + sizes.candidate_row_bytes * sizes.candidates))
    grows = sizes.candidate_row_bytes * sizes.outputs * sizes.ranks / (2 * sizes.d)
    least = int(free // (row + sizes.candidate_row_bytes * FEWEST))
    return min(least, int((math.sqrt(row * row + 4 * grows * free) - row) / (2 * grows)))
