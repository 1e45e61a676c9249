"""Kinds of values that several requests have."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from exhume.requests.request import Option
from exhume.units import parse_bytes, parse_duration

Seconds = Annotated[
    float, Field(ge=1e-9, lt=1e15), BeforeValidator(lambda v: parse_duration(v) if isinstance(v, str) else v)
]
"""A time, which may be given as a text like 90s, 10m or 2h."""
Bytes = Annotated[int, Field(ge=1, lt=10**15), BeforeValidator(lambda v: parse_bytes(v) if isinstance(v, str) else v)]
"""A size, which may be given as a text like 512M or 8G."""
Names = Annotated[str, BeforeValidator(lambda v: ",".join(v) if isinstance(v, list | tuple) else v)]
"""Names with commas between them; Python may give them as a sequence."""

Seed = Annotated[int, Field(ge=0, lt=2**63), Option("Every random number follows from it.")]
Run = Annotated[Path, Option("The run folder.", argument=True)]
Factory = Annotated[
    str | None,
    Option("Your own code that builds the network, if the run was made with it.", metavar="PACKAGE.MODULE:FACTORY"),
]
