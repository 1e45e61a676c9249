"""Options that are declared elsewhere, by whoever makes use of them, and become fields of a request.

A method of attack declares its hyperparameters where it has them:

    @dataclass(frozen=True)
    class HeavyBall:
        step_size: float | None = field(default=None, metadata={"help": "Its step.", "option": "step"})

`declared_options` reads them, `merged` joins those of several methods, and `with_options` gives a model that has them
as fields like any other. A value of None means that the option was not given: the method's own default holds then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import Field, create_model

from exhume.requests.request import Option, Request

Model = TypeVar("Model", bound=Request)


@dataclass(frozen=True)
class ExtraOption:
    """`kind` is the type of a value that is given; `field` its name in the class of the `owners`."""

    name: str
    kind: type | UnionType
    help: str
    owners: tuple[str, ...]
    field: str
    least: float | None = None


def declared_options(owner: str, declaring: type) -> tuple[ExtraOption, ...]:
    """Of a dataclass, the fields whose metadata have a `help`; `option` is another name, `least` a bound."""
    kinds = get_type_hints(declaring)
    return tuple(
        ExtraOption(
            name=field.metadata.get("option", field.name),
            kind=_without_none(kinds[field.name]),
            help=field.metadata["help"],
            owners=(owner,),
            field=field.name,
            least=field.metadata.get("least"),
        )
        for field in fields(declaring)
        if "help" in field.metadata
    )


def merged(options: Iterable[ExtraOption]) -> tuple[ExtraOption, ...]:
    """One option for each name. Owners that share one have to mean the same: the first says what it is."""
    found: dict[str, ExtraOption] = {}
    for option in options:
        first = found.setdefault(option.name, option)
        if first is not option:
            assert first.kind == option.kind, f"{option.name} is of two kinds: of {first.owners} and {option.owners}"
            found[option.name] = replace(first, owners=first.owners + option.owners)
    return tuple(found.values())


@cache
def with_options(model: type[Model], options: tuple[ExtraOption, ...]) -> type[Model]:
    """The model with further fields, all of which may be left out."""
    added: dict[str, Any] = {
        option.name: (
            Annotated[option.kind | None, Field(ge=option.least), Option(f"{', '.join(option.owners)}: {option.help}")],
            None,
        )
        for option in options
    }

    class Completed(model):  # type: ignore[misc, valid-type]
        @classmethod
        def complete(cls) -> type[Model]:
            return cls

        @classmethod
        def declared(cls) -> type[Model]:
            return model

    made: type[Model] = create_model(model.__name__, __base__=Completed, **added)
    return made


def _without_none(kind: Any) -> Any:
    """
    >>> _without_none(float | None), _without_none(int)
    (<class 'float'>, <class 'int'>)
    """
    given = [part for part in get_args(kind) if part is not type(None)]
    return given[0] if isinstance(kind, UnionType) and len(given) == 1 else kind
