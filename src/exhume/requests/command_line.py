"""The line that asks for a request again.

    exhume train glm --data faces --samples 20 --loss square --out a

Only what differs from the default is in it. It is written from what a file keeps of the request, so that it can be had
where the model is not. A line that others read names files and folders by their last part: what leads to them may name
a user.
"""

import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePath, PureWindowsPath

from exhume.requests.request import Request, dashed, flag_of, option_of

HIDDEN = {"data_dir": "DIR"}
"""What stands for a value of which not even the last part should be seen."""


def arguments(request: Request) -> list[str]:
    """The words after those of the command."""
    fields = type(request).model_fields
    places = [name for name, field in fields.items() if option_of(field).argument]
    return words(request.to_config(), places, lambda name: flag_of(name, fields[name]))


def shown_line(request: Request) -> str:
    """The whole line for other eyes, ready for a shell."""
    return shlex.join(["exhume", *request.command.split(), *arguments(for_others(request))])


def words(
    kept: Mapping[str, object], places: list[str] | tuple[str, ...] = (), flag: Callable[[str], str] | None = None
) -> list[str]:
    """From options by their names, those in `places` without a flag.

    >>> words({"method": "ntk", "exact": True, "run": "a", "where": ["b", "-c"]}, ["run"])
    ['a', '--method', 'ntk', '--exact', '--where', 'b', '--where=-c']
    """
    named = flag or dashed
    placed = [text for name in places for text in _texts(kept.get(name))]
    flagged = [
        word
        for name, value in kept.items()
        if name not in places
        for word in ([named(name)] if value is True else _flagged(named(name), _texts(value)))
    ]
    # what looks like a flag is none behind two dashes
    return [*flagged, "--", *placed] if any(text.startswith("-") for text in placed) else [*placed, *flagged]


def for_others(request: Request) -> Request:
    """The same request without folders of this machine."""
    return request.from_config(shown(request.to_config()))


def shown(kept: Mapping[str, object]) -> dict[str, object]:
    """
    >>> shown({"data": "/home/me/photos", "data_dir": "/home/me", "side": 8})
    {'data': 'photos', 'data_dir': 'DIR', 'side': 8}
    """
    return {name: HIDDEN.get(name, _shown(value)) for name, value in kept.items()}


def last_part(path: str) -> str:
    r"""
    >>> last_part("/home/somebody/photos/"), last_part("C:\\Users\\somebody\\photos"), last_part("a:b"), last_part("/")
    ('photos', 'photos', 'a:b', 'FOLDER')
    """
    return PureWindowsPath(PurePath(path).name).name or "FOLDER" if {"/", "\\"} & set(path) else path


def _shown(value: object) -> object:
    match value:
        case str():
            return last_part(value)
        case list():
            return [_shown(part) for part in value]
    return value


def _texts(value: object) -> list[str]:
    match value:
        case None:
            return []
        case list() | tuple():
            return [str(part) for part in value]
    return [str(value)]


def _flagged(flag: str, texts: list[str]) -> list[str]:
    return [word for text in texts for word in ([f"{flag}={text}"] if text.startswith("-") else [flag, text])]
