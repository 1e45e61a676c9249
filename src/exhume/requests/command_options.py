"""A command of the program from a request: its options with their help, parsed into the request again.

Options are made when somebody asks for them: those of an attack are declared by the attacks, which takes torch, and
a list of all commands should not wait for it.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import typer
import typer.core
from pydantic.fields import FieldInfo

from exhume.requests.request import Option, Request, flag_of, option_of

Asked = TypeVar("Asked", bound=Request)
JSON = "Print one JSON object as the last line of standard output."
METAVARS = {int: "INTEGER", float: "FLOAT", Path: "PATH", str: "TEXT"}
LARGEST_SHOWN = 2**32  # what the machine cannot count to is no news
BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


class RequestCommand(typer.core.TyperCommand, Generic[Asked]):
    """A command whose parameters are the fields of a request, and --json."""

    asked: type[Asked]
    answer: Callable[[Asked, bool], None]

    def get_params(self, ctx: Any) -> Any:
        if not self.params:
            self._open()
        return super().get_params(ctx)

    def request(self, given: Mapping[str, object]) -> Asked:
        """What was not given is left to the defaults of the model."""
        asked = {name: value for name, value in given.items() if value is not None and value is not False}
        return type(self).asked.complete().from_texts({name: value for name, value in asked.items() if name != "json"})

    def perform(self, request: Asked, as_json: bool) -> None:
        type(self).answer(request, as_json)

    def _open(self) -> None:
        def run(**given: Any) -> None:
            self.perform(self.request(given), bool(given["json"]))

        _sign(run, type(self).asked.complete())
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command()(run)
        made = typer.main.get_command(app)
        self.params, self.callback = made.params, made.callback


def add_command(
    app: typer.Typer, name: str, answer: Callable[[Asked, bool], None], asked: type[Asked] | None = None
) -> None:
    """Adds what a function does with a request and whether it prints JSON. Its docstring is the help.

    `asked`: which request, if the annotation does not say so, and its docstring is the help then.
    """
    model = asked or next(iter(get_type_hints(answer).values()))
    own = {"asked": model, "answer": staticmethod(answer)}
    kind = types.new_class("Command", (RequestCommand,), exec_body=lambda body: body.update(own))
    app.command(name, cls=kind, help=inspect.getdoc(asked or answer))(lambda: None)


def takes_request(function: Callable[..., None]) -> bool:
    """Whether it is a function for `add_command`, and none whose parameters are options themselves."""
    kind = next(iter(get_type_hints(function).values()), None)
    return isinstance(kind, type) and issubclass(kind, Request)


def _sign(function: Callable[..., None], model: type[Request]) -> None:
    """Gives a function the parameters that typer reads options from."""
    annotations = {name: _annotation(name, field) for name, field in model.model_fields.items()}
    annotations["json"] = Annotated[bool, typer.Option("--json", help=JSON)]
    parameters = []
    for name, annotation in annotations.items():
        unless = False if get_args(annotation)[0] is bool else None
        default = (
            inspect.Parameter.empty if name in model.model_fields and _required(model.model_fields[name]) else unless
        )
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    vars(function)["__signature__"] = inspect.Signature(parameters)
    function.__annotations__ = annotations


def _annotation(name: str, field: FieldInfo) -> Any:
    option, kind = option_of(field), _kind(field.annotation)
    shown = f"{option.help}{'' if option.text else _limits(field)}{_default(option, field)}"
    if kind is bool:
        return Annotated[bool, typer.Option(flag_of(name, field), help=shown)]
    parsed: Any = list[str] if kind is tuple else str
    metavar = option.metavar or ("TEXT" if option.text else METAVARS.get(kind, "TEXT"))
    if option.argument:
        given: Any = typer.Argument(metavar=option.metavar or name.upper(), help=shown, show_default=False)
    else:
        given = typer.Option(flag_of(name, field), metavar=metavar, help=shown, show_default=False)
    return Annotated[parsed if _required(field) else parsed | None, given]


def _required(field: FieldInfo) -> bool:
    return field.is_required() or option_of(field).required


def _kind(annotation: Any) -> Any:
    """What one value is: the type inside Optional, Annotated and tuples of any length.

    >>> _kind(int | None), _kind(Annotated[float, "any"] | None), _kind(tuple[str, ...]), _kind(bool)
    (<class 'int'>, <class 'float'>, <class 'tuple'>, <class 'bool'>)
    """
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return tuple
    given = [part for part in get_args(annotation) if part is not type(None)]
    return _kind(given[0]) if given else annotation


def _limits(field: FieldInfo) -> str:
    """
    >>> from pydantic import Field
    >>> _limits(FieldInfo.from_annotation(Annotated[int, Field(ge=1)]))
    ' [x>=1]'
    """
    bounds = [(sign, getattr(part, name, None)) for part in field.metadata for name, sign in BOUNDS.items()]
    limits = [f"x{sign}{bound:g}" for sign, bound in bounds if bound is not None and abs(bound) < LARGEST_SHOWN]
    return f" [{', '.join(limits)}]" if limits else ""


def _default(option: Option, field: FieldInfo) -> str:
    nothing = field.default is None or field.default is False or field.default == ()
    if field.is_required() or nothing:
        return ""
    return f" [default: {field.default if option.text is None else option.text(field.default)}]"
