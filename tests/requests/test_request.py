"""A request of a few fields, and all that comes from it."""

import inspect
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from exhume.errors import UsageError
from exhume.requests.command_line import arguments, shown_line
from exhume.requests.command_options import add_command
from exhume.requests.extra_options import ExtraOption, declared_options, merged, with_options
from exhume.requests.kinds import Seconds
from exhume.requests.request import Option, Request
from exhume.units import duration_text


class Draw(Request):
    """Draws.

    Example: draw box
    """

    command: ClassVar[str] = "draw"

    shape: Annotated[str, Option("What to draw.", argument=True)]
    width: Annotated[int, Field(ge=1), Option("Across.")] = 3
    is_round: Annotated[bool, Option("Without corners.", flag="--round")] = False
    colours: Annotated[tuple[str, ...], Option("May be repeated.")] = ()
    within: Annotated[Seconds, Option("At most so long.", text=duration_text)] = 60.0
    paper: Annotated[Path | None, Option("A file.")] = None


class DashedDraw(Draw):
    """A new option is a field, and nothing else."""

    dashes: Annotated[float | None, Option("Length of a dash.")] = None


def run(model: type[Request], *words: str) -> tuple[str, list[tuple[Any, bool]]]:
    """What a program of two commands prints, and the requests that it gets."""
    app, got = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False), list[tuple[Any, bool]]()
    add_command(app, "draw", lambda request, as_json: got.append((request, as_json)), model)
    app.command("other")(lambda: None)
    done = CliRunner().invoke(app, ["draw", *words])
    if isinstance(done.exception, UsageError):
        raise done.exception
    return done.output, got


def test_the_fields_are_the_options_of_the_command() -> None:
    words = ["box", "--width", "4", "--round", "--colours", "red", "--colours", "blue", "--within", "2m", "--json"]
    _, got = run(Draw, *words)
    assert got == [(Draw(shape="box", width=4, is_round=True, colours=("red", "blue"), within=120.0), True)]
    assert run(Draw, "box")[1] == [(Draw(shape="box"), False)]


def test_help_shows_texts_limits_and_defaults() -> None:
    shown = " ".join(run(Draw, "--help")[0].split())
    assert all(words in shown for words in ("Draws.", "Example: draw box", "What to draw.", "[required]", "--json"))
    assert "--width INTEGER Across. [x>=1] [default: 3]" in shown
    assert "--within TEXT At most so long. [default: 1m]" in shown
    assert "--round Without corners." in shown
    assert "--paper PATH A file. --json" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["box", "--width", "wide"], "expected --width to be a valid integer, found 'wide'"),
        (["box", "--width", "0"], "expected --width to be greater than or equal to 1, found '0'"),
        (["box", "--within", "soon"], "expected a time like 90s, 10m or 2h, found 'soon'"),
    ],
)
def test_wrong_texts_are_refused_by_the_name_of_the_flag(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        run(Draw, *words)
    assert str(refused.value) == said


@pytest.mark.parametrize("words", [[], ["box", "--tall"], ["box", "box"], ["box", "--width"]])
def test_what_is_no_line_of_this_command_is_refused(words: list[str]) -> None:
    output, got = run(Draw, *words)
    assert got == []
    assert "Error: " in output


def test_a_new_option_is_one_field() -> None:
    """It is in the help, in the printed line, in what a file keeps, and among the keyword arguments."""
    asked = DashedDraw(shape="box", dashes=0.5)
    assert "--dashes FLOAT Length of a dash." in " ".join(run(DashedDraw, "--help")[0].split())
    assert arguments(asked) == ["box", "--dashes", "0.5"]
    assert run(DashedDraw, *arguments(asked))[1] == [(asked, False)]
    assert asked.to_config() == {"shape": "box", "dashes": 0.5}
    assert DashedDraw.from_config(json.loads(json.dumps(asked.to_config()))) == asked
    assert "dashes" in inspect.signature(DashedDraw).parameters


def test_a_line_for_others_leaves_folders_out() -> None:
    asked = Draw(shape="/home/me/box", paper=Path("/home/me/a b.png"), is_round=True, within=600.0)
    assert shown_line(asked) == "exhume draw box --round --within 10m --paper 'a b.png'"


@dataclass(frozen=True)
class Pen:
    ink: float | None = field(default=None, metadata={"help": "How much ink.", "least": 0})
    point: str = field(default="fine", metadata={"help": "fine or broad.", "option": "tip"})
    rounds: int = 3


@dataclass(frozen=True)
class Brush:
    ink: float = field(default=2.0, metadata={"help": "How much colour."})
    wet: bool = field(default=False, metadata={"help": "With water."})


OPTIONS = merged([*declared_options("pen", Pen), *declared_options("brush", Brush)])


class CompletedDraw(Draw):
    @classmethod
    def complete(cls) -> type[Any]:
        return with_options(cls, OPTIONS)


def test_options_that_are_declared_elsewhere_are_fields_like_others() -> None:
    model = CompletedDraw.complete()
    assert issubclass(model, CompletedDraw)
    assert model is CompletedDraw.complete() is model.complete()
    assert [option.owners for option in OPTIONS] == [("pen", "brush"), ("pen",), ("brush",)]
    shown = " ".join(run(CompletedDraw, "--help")[0].split())
    assert "--ink FLOAT pen, brush: How much ink. [x>=0]" in shown
    assert "--tip TEXT pen: fine or broad." in shown
    assert "--rounds" not in shown
    asked = CompletedDraw.from_config({"shape": "box", "ink": 0.5, "wet": True})
    assert arguments(asked) == ["box", "--ink", "0.5", "--wet"]
    assert run(CompletedDraw, *arguments(asked))[1] == [(asked, False)]
    assert CompletedDraw.from_config(asked.to_config()) == asked
    assert CompletedDraw.from_config({"shape": "box"}).to_config() == {"shape": "box"}


@pytest.mark.parametrize("fields", [{"ink": -1.0}, {"ink": "much"}, {"thickness": 1}])
def test_declared_options_are_checked_like_others(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"^expected .*found"):
        CompletedDraw.from_config({"shape": "box", **fields})


def test_one_option_is_of_one_kind() -> None:
    other = ExtraOption("ink", str, "Its name.", ("stamp",), "ink")
    with pytest.raises(AssertionError, match="two kinds"):
        merged([*OPTIONS, other])


@pytest.mark.parametrize("make", [Draw, CompletedDraw.from_config])
def test_a_request_travels_to_another_process(make: Callable[..., Request]) -> None:
    asked = Draw(shape="box", within=1.5) if make is Draw else make({"shape": "box", "ink": 2.0})
    there = pickle.loads(pickle.dumps(asked))
    assert there == asked
    assert type(there) is type(asked)
