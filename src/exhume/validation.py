"""Pydantic's complaints as one line: what was expected, what was found."""

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from exhume.errors import UsageError

Model = TypeVar("Model", bound=BaseModel)


def parse_fields(model: type[Model], **fields: object) -> Model:
    """An instance of the model, or a UsageError of one line instead of pydantic's several."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise UsageError(one_line(error, model)) from None


def one_line(error: ValidationError, model: type[BaseModel], called: Callable[[str], str] = str) -> str:
    """The first complaint as 'expected ..., found ...'. `called`: what a field is called where it was given."""
    first = error.errors(include_url=False)[0]
    # The position of an alternative inside a union is no help to a reader.
    place = called(str(first["loc"][0])) if first["loc"] else "settings"
    found = repr(first["input"])
    found = found if len(found) <= 80 else found[:77] + "..."
    if first["type"] == "extra_forbidden":
        return f"expected the settings {', '.join(model.model_fields)}, found {place!r}"
    if first["type"] == "missing":
        return f"expected a value for {place}, found none"
    prefix, complaint = "Input should be ", first["msg"].partition(", unable to parse")[0]
    if complaint.startswith(prefix):
        return f"expected {place} to be {complaint.removeprefix(prefix)}, found {found}"
    return f"expected another {place}, found {found}: {complaint}"
