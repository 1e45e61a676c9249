"""Who may come in: the browser of whoever started the server, on a page of the server itself, and nobody else.

Four checks, each of which would do alone against the attack it is named for:

    Host             a foreign name that was made to lead to this machine (DNS rebinding)
    the token        other users and programs of this machine, which can reach the port but do not know the address
    Sec-Fetch-Site   requests that another site makes this browser send; links of other sites too
    Origin           the same for browsers that do not say Sec-Fetch-Site; whatever changes something has to say it

There are no cookies, so a browser adds nothing by itself that another site could make use of. No answer carries a CORS
header, so no other site can read one. Pages may load nothing but the server's own script and style.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exhume.serving.settings import ServeSettings

READING = ("GET", "HEAD")
METHODS = (*READING, "POST", "DELETE")
OWN_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; frame-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_PAGE = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
"""For a report: a frame without an origin, which can ask for nothing. The page itself allows its one script only."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Refusal:
    status: int
    reason: str


def refusal(settings: ServeSettings, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
    """Why a request is not answered; None where it is. `headers` has small letters for names."""
    if method not in METHODS:
        return Refusal(405, f"expected one of {', '.join(METHODS)}, found another method")
    if headers.get("host") not in settings.hosts:
        return Refusal(421, f"expected the host {settings.hosts[0]}, found another; use the address that was printed")
    told = path.removeprefix("/").split("/", 1)[0]
    if not hmac.compare_digest(told.encode(), settings.token.encode()):
        return Refusal(403, "expected the token in the address, found another; use the address that was printed")
    reading, site, origin = method in READING, headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in (("same-origin", "none") if reading else ("same-origin",)):
        return Refusal(403, f"expected a request of this page itself, found one of a {site} page; type the address")
    if (origin is not None or not reading) and origin not in [f"http://{host}" for host in settings.hosts]:
        return Refusal(403, "expected a request of this page itself, found another origin")
    return None


class Guard:
    """Around the whole application. What comes through has lost the token from its path."""

    def __init__(self, inside: ASGIApp, settings: ServeSettings) -> None:
        self.inside, self.settings = inside, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.inside(scope, receive, send)
        if scope["type"] != "http":
            return None  # no websockets: the server closes them
        refused = refusal(self.settings, scope["method"], scope["path"], _first_of_each(Headers(scope=scope)))
        answer: ASGIApp = self.inside
        if refused is not None:
            answer = PlainTextResponse(refused.reason + "\n", refused.status)
        else:
            own = f"/{self.settings.token}"
            scope = {**scope, "path": scope["path"].removeprefix(own) or "/", "root_path": ""}
            scope.pop("raw_path", None)
        await answer(scope, receive, _with_headers(send))
        return None


def _first_of_each(headers: Headers) -> dict[str, str]:
    """A header that is said twice counts as said by nobody: who reads which one differs."""
    return {name: headers[name] if len(headers.getlist(name)) == 1 else "" for name in headers}


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Content-Security-Policy", OWN_PAGE)
        await send(message)

    return sending
