"""A request: what one command can be asked for, with all that anybody needs to know of each option.

    class Draw(Request):
        command = "draw"
        shape: Annotated[str, Option("What to draw.")]
        times: Annotated[int, Field(ge=1), Option("How often.")] = 1

From it come the options of the command with their help (`command_options.py`), the line that asks for the same again
(`command_line.py`), what a file keeps of it (`to_config`), the keys of a sweep and keyword arguments (the fields). An
option is written here and nowhere else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from exhume.errors import UsageError
from exhume.validation import one_line

Asked = TypeVar("Asked", bound="Request")


@dataclass(frozen=True)
class Option:
    """How a field stands on a command line.

    `flag`: None is the name of the field with dashes. `argument`: it has no flag, only a place.
    `required`: a command line has to give it, though others may do without. `text`: how a value is written for people,
    where that is not how Python or JSON write it.
    """

    help: str
    flag: str | None = None
    metavar: str | None = None
    argument: bool = False
    required: bool = False
    text: Callable[[Any], str] | None = None


class Request(BaseModel):
    """Fields are checked one by one here; whether they agree shows where they are used."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    command: ClassVar[str] = ""
    """The words after `exhume`."""

    @classmethod
    def complete(cls: type[Asked]) -> type[Asked]:
        """The model with the options that are only known once the program runs; most have none."""
        return cls

    @classmethod
    def declared(cls) -> "type[Request]":
        """The model that `complete` was asked of."""
        return cls

    @classmethod
    def from_texts(cls: type[Asked], given: Mapping[str, object]) -> Asked:
        """From the texts of a command line; complaints name the flags."""
        try:
            return cls.model_validate(dict(given), strict=False)
        except ValidationError as error:
            raise UsageError(one_line(error, cls, lambda name: flag_of(name, cls.model_fields[name]))) from None

    @classmethod
    def from_config(cls: type[Asked], kept: Mapping[str, object]) -> Asked:
        """From what `to_config` gave, after its way through a file."""
        complete = cls.complete()
        try:
            return complete.model_validate(dict(kept), strict=False)
        except ValidationError as error:
            raise UsageError(one_line(error, complete)) from None

    def __reduce__(self) -> tuple[Any, ...]:
        """A complete model cannot be imported, but what it was made from can, and every process completes it."""
        return type(self).declared().from_config, (self.model_dump(),)

    def to_config(self) -> dict[str, Any]:
        """What differs from the default, as JSON has it."""
        kept = self.model_dump(mode="json", exclude_defaults=True)
        for name in kept:
            text = option_of(type(self).model_fields[name]).text
            kept[name] = kept[name] if text is None else text(getattr(self, name))
        return kept


def option_of(field: FieldInfo) -> Option:
    return next(extra for extra in field.metadata if isinstance(extra, Option))


def flag_of(name: str, field: FieldInfo) -> str:
    """What the field is called on the command line: its flag, or the name in the place of an argument."""
    option = option_of(field)
    if option.argument:
        return option.metavar or name.upper()
    return option.flag or dashed(name)


def dashed(name: str) -> str:
    """
    >>> dashed("held_out")
    '--held-out'
    """
    return f"--{name.replace('_', '-')}"
