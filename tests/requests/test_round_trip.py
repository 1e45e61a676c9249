"""Every command of the program: request -> line -> the same request, and request -> file -> the same request."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from all_commands import COMMANDS, MODELS
from exhume.cli.app import main
from exhume.requests.command_line import arguments, for_others, shown_line
from exhume.requests.command_options import RequestCommand
from exhume.requests.request import Request, option_of

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)


def test_every_command_is_made_from_a_request() -> None:
    assert len(MODELS) == len(COMMANDS)
    for words, model in MODELS.items():
        expected = words.removesuffix(" package.module:factory")
        assert model.command == expected


def values(annotation: Any, field: FieldInfo) -> st.SearchStrategy[Any]:
    """What a field may be given, None among it only where that is the default: no line can ask for it otherwise."""
    bounds: dict[str, float] = {}
    for part in field.metadata:
        bounds |= {name: getattr(part, name) for name in ("ge", "gt", "lt", "le") if hasattr(part, name)}
    if option_of(field).text is not None:  # seconds or bytes, whose limits are inside
        whole = st.integers(1, 10**15 - 1)
        return whole if int in kinds(annotation) else st.floats(1e-6, 1e9) | st.integers(1, 10**6).map(float)
    if get_origin(annotation) is tuple:
        return st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
    chosen = []
    for kind in kinds(annotation):
        if get_origin(kind) is Literal:
            chosen.append(st.sampled_from(get_args(kind)))
        elif kind is bool:
            chosen.append(st.booleans())
        elif kind is int:
            least = bounds.get("ge", bounds.get("gt", -(2**40)))
            chosen.append(st.integers(int(least), int(min(bounds.get("lt", 2**40), 2**63)) - 1))
        elif kind is float:
            chosen.append(st.floats(bounds.get("ge"), allow_nan=False, allow_infinity=False))
        elif kind is Path:
            chosen.append(TEXTS.map(Path))
        else:
            assert kind is str, kind
            chosen.append(TEXTS)
    return st.one_of(chosen)


def kinds(annotation: Any) -> list[Any]:
    if annotation is type(None):
        return []
    if get_origin(annotation) is Literal or not get_args(annotation):
        return [annotation]
    if hasattr(annotation, "__metadata__"):
        return kinds(annotation.__origin__)
    return [kind for part in get_args(annotation) for kind in kinds(part)]


def requests(model: type[Request]) -> st.SearchStrategy[Request]:
    required: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        needed = field.is_required() or option_of(field).required
        (required if needed else optional)[name] = values(field.annotation, field)
    if "factory" in required:
        required["factory"] = st.from_regex(r"[a-z]{1,5}\.[a-z]{1,5}:[a-z]{1,5}", fullmatch=True)
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: model(**fields))


def parsed(words: list[str]) -> Request:
    """The request that the program gets from its words; nothing is done with it."""
    got = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestCommand, "perform", lambda self, request, as_json: got.append(request))
        patch.setattr(sys, "argv", words)
        main()
    assert len(got) == 1
    return got[0]


@pytest.mark.parametrize("words", MODELS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_line_asks_for_the_same_again(words: str, data: st.DataObject) -> None:
    request = data.draw(requests(MODELS[words]))
    assert parsed(["exhume", *request.command.split(), *arguments(request)]) == request
    assert parsed(shlex.split(shown_line(request))) == for_others(request)


@pytest.mark.parametrize("words", MODELS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_file_keeps_the_same(words: str, data: st.DataObject) -> None:
    request = data.draw(requests(MODELS[words]))
    kept = json.loads(json.dumps(request.to_config()))
    assert type(request).from_config(kept) == request
