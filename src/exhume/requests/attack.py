"""What an attack can be asked for: by `exhume attack`, in a sweep, and in Python."""

from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import Field

from exhume.attacks.registry import BUILT_IN
from exhume.requests.extra_options import declared_options, merged, with_options
from exhume.requests.kinds import Bytes, Factory, Run, Seconds, Seed
from exhume.requests.request import Option, Request
from exhume.units import bytes_text, duration_text

Asked = TypeVar("Asked", bound="AttackOptions")


class AttackOptions(Request):
    """How to attack, whatever it is that is attacked."""

    method: Annotated[
        str,
        Option(f"auto, or {', '.join(dict.fromkeys(name for name, _ in BUILT_IN))}, or that of an installed package."),
    ] = "auto"
    subspace: Annotated[
        str | None, Option("The data's subspace, from: first-layer, moments, or a file with its basis.")
    ] = None
    known: Annotated[str | None, Option("informed: the known samples; default: known.safetensors of the run.")] = None
    recipe_file: Annotated[str | None, Option("replay: how the network was trained, as JSON; see docs/replay.md.")] = (
        None
    )
    prior: Annotated[str, Option("image: low-resolution images where there are too few weights for whole ones.")] = (
        "none"
    )
    spectrum: Annotated[str | None, Option("--prior image: a folder of public images, or a file; default: 1/f.")] = None
    resolution: Annotated[
        int | None, Option("--prior image: nothing finer than so many of the lowest frequencies.")
    ] = None
    samples: Annotated[int | Literal["auto"], Option("auto, or the number of samples to look for.", metavar="TEXT")] = (
        "auto"
    )
    iterations: Annotated[int | None, Option("At most so many iterations.")] = None
    budget: Annotated[Seconds | None, Option("At most so long, e.g. 90s, 10m, 2h.", text=duration_text)] = None
    memory: Annotated[
        Bytes | None,
        Option("At most so much for the whole process, e.g. 8G: fewer rows of V, or V streamed.", text=bytes_text),
    ] = None
    held_out: Annotated[float, Option("Share of the weights kept for the verdict.")] = 0.05
    device: Annotated[str, Option("cpu, cuda, ...")] = "cpu"
    dtype: Annotated[str, Option("float32 or float64.")] = "float32"
    products: Annotated[str | None, Option("bfloat16: the search reads a coarse copy of V, the end the exact one.")] = (
        None
    )
    start_seeds: Annotated[int, Field(ge=1), Option("Seeds to try where the initial head is known up to its seed.")] = (
        1000
    )
    pool: Annotated[
        int, Field(ge=1), Option("Attack from so many seeds, and keep what the runs agree on, best first.")
    ] = 1

    @classmethod
    def complete(cls: type[Asked]) -> type[Asked]:
        """With the options that methods declare as their own."""
        from exhume.attacks.registry import known_methods

        methods = [method for method in known_methods() if not method.stands_for]
        options = [option for method in methods for option in declared_options(method.name, method)]
        return with_options(cls, merged(option for option in options if option.name not in cls.model_fields))


class AttackCommand(AttackOptions):
    """An attack on a run folder."""

    command: ClassVar[str] = "attack"

    run: Run
    model: Factory = None
    seed: Seed = 0

    def options(self) -> dict[str, object]:
        """How to attack, without what is attacked."""
        return {name: value for name, value in self.to_config().items() if name not in ("run", "model", "seed")}
