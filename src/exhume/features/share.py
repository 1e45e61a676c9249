"""The rows of V that one of several processes holds: dealt like cards, a pack of 256 at a time.

Whatever stage of an attack uses the first rows of V, every process then holds its part of them, equal to that of the
others up to one pack, and none is ever sent. Which rows a stage uses does not depend on the number of processes.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import CHUNK_ROWS, RowsOfOthers

PACK = CHUNK_ROWS  # a pack of drawn rows is then drawn without any other


@dataclass(frozen=True)
class Share:
    """What falls to `rank` of `size` processes: every size-th pack of rows."""

    rank: int = 0
    size: int = 1

    def count(self, rows: int) -> int:
        """How many of the first rows.

        >>> [Share(rank, 3).count(1100) for rank in range(3)]
        [512, 332, 256]
        """
        packs, rest = divmod(rows, PACK)
        rounds, over = divmod(packs, self.size)
        return (rounds + (self.rank < over)) * PACK + (rest if self.rank == over else 0)

    def numbers(self, rows: int) -> Int[Tensor, " own"]:
        """Which of the first rows."""
        places = torch.arange(rows)
        return places[places // PACK % self.size == self.rank]

    def of(self, features: RidgeFeatures) -> RidgeFeatures:
        """These features' own rows, still kept where they are."""
        if self.size == 1:
            return features
        bias = None if features.bias is None else self.columns(features.bias[None])[0]
        return replace(features, rows=DealtRows(features.rows, self, 0, self.count(features.p)), bias=bias)

    def columns(self, values: Float[Tensor, "k p"]) -> Float[Tensor, "k own"]:
        """Numbers that belong to the rows, one per row."""
        return values if self.size == 1 else values[:, self.numbers(values.shape[1]).to(values.device)]


@dataclass(frozen=True, eq=False)
class DealtRows(RowsOfOthers):
    """A share of other rows: `p` of them, from its own number `first` on."""

    share: Share
    first: int
    p: int

    def block(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        begin, end = self.first + start, self.first + stop
        packs = range(begin // PACK, -(-end // PACK)) if begin < end else range(0)
        if len(packs) <= 1 or torch.get_num_threads() == 1:
            pieces = [self._piece(pack, begin, end) for pack in packs]
        else:  # as many as are drawn at once of rows that are not dealt
            with ThreadPoolExecutor(torch.get_num_threads()) as pool:
                pieces = list(pool.map(lambda pack: self._piece(pack, begin, end), packs))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces or [self.whole.block(0, 0)])

    def _piece(self, pack: int, begin: int, end: int) -> Float[Tensor, "rows d"]:
        """What a pack has of the share's own rows begin..end-1."""
        shift = (pack * self.share.size + self.share.rank - pack) * PACK
        return self.whole.block(max(begin, pack * PACK) + shift, min(end, (pack + 1) * PACK) + shift)

    def part(self, start: int, stop: int) -> "DealtRows":
        return DealtRows(self.whole, self.share, self.first + start, stop - start)
