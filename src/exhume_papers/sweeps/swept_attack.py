"""An attack as a sweep asks for it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Outline
from exhume.errors import UsageError
from exhume.experiments.attack_request import AttackRequest
from exhume.experiments.run import RunFolder
from exhume.known import Known
from exhume.requests.request import Option
from exhume_papers.making.known_samples import check_missing, write_known


class SweptAttackRequest(AttackRequest):
    """An attack of a sweep, which also makes its victims: it can do for each of them what `exhume known` does.

    `missing` is the sample that an informed adversary does not know. `seed` is that of the attack; None: the victim's.
    """

    missing: Annotated[int, Field(ge=0), Option("The number of the sample that is not known.")] = 0
    seed: Annotated[int | None, Field(ge=0, lt=2**63), Option("Of the attack; default: the victim's.")] = None

    def method_for(self, outline: Outline) -> AnyMethod:
        if "missing" in self.model_fields_set and not self._knows_others:
            found = "known, which says what is missing" if self._takes_known else f"method {self.method}"
            raise UsageError(f"expected missing with method informed and without known, found {found}; leave it out")
        if self._knows_others and outline.samples is not None:
            check_missing(self.missing, outline.samples)
        return super().method_for(outline)

    def known_samples(self, folder: RunFolder, d: int) -> Known:
        if self._knows_others:
            write_known(folder, self.missing)
        return super().known_samples(folder, d)

    def identity(self, outline: Outline, contents: Mapping[str, str]) -> dict[str, Any]:
        """Without the seed, which is told from that of the victim elsewhere."""
        return {name: value for name, value in super().identity(outline, contents).items() if name != "seed"}

    @property
    def _knows_others(self) -> bool:
        return self._takes_known and self.known is None
