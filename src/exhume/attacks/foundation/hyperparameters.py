"""Hyperparameters of a method as options: each field of its dataclass is one, by its own name or by one it is given.

step_size: float | None = option(None, "its step; default: as published for this d", name="step")
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from exhume.errors import UsageError

OptionValue = str | int | float | bool
T = TypeVar("T")


@dataclass(frozen=True)
class Hyperparameter:
    """`name` is that of the option, `field` and `kind` are those of the dataclass. `choices`: words for values.

    `kind` is whatever may stand behind a colon, a Literal or a union too, for which there is no type.
    """

    name: str
    field: str
    kind: Any
    help: str = ""
    choices: Mapping[str, OptionValue] | None = None

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def parse(self, value: OptionValue) -> object:
        """The field's value: of a word out of `choices`, or of the field's own type, which a text may spell."""
        if self.choices is not None and value not in self.choices.values():
            if value not in self.choices:
                raise UsageError(f"expected {self.flag} out of {', '.join(self.choices)}, found {value!r}")
            return self.choices[str(value)]
        try:
            kind = TypeAdapter(self.kind)
            return kind.validate_strings(value) if type(value) is str else kind.validate_python(value)
        except ValidationError as problem:
            raise UsageError(f"expected {self.flag}: {problem.errors()[0]['msg']}, found {value!r}") from problem


def option(
    default: T, help: str = "", *, name: str | None = None, choices: Mapping[str, OptionValue] | None = None
) -> T:
    """A field of a method's dataclass that has an option of its own."""
    return field(default=default, metadata={"option": name, "help": help, "choices": choices})


@cache
def hyperparameters_of(method: type) -> Mapping[str, Hyperparameter]:
    assert is_dataclass(method), "a method is a dataclass of its hyperparameters"
    hints = get_type_hints(method)
    found = [_hyperparameter(one, hints[one.name]) for one in fields(method) if one.init]
    return {one.name: one for one in found}


def _hyperparameter(one: Field[Any], kind: Any) -> Hyperparameter:
    declared = one.metadata
    name = declared.get("option") or one.name
    return Hyperparameter(name, one.name, kind, declared.get("help", ""), declared.get("choices"))
