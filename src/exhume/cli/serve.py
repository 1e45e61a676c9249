"""`exhume serve`: a page on this machine to drop a model on."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from exhume.cli.output import print_json, say
from exhume.requests.kinds import Bytes
from exhume.requests.request import Option, Request
from exhume.units import bytes_text


class ServeRequest(Request):
    command: ClassVar[str] = "serve"

    out: Annotated[Path, Option("The folder that keeps the reports.")] = Path("audits")
    port: Annotated[int, Field(ge=0, lt=2**16), Option("0: any that is free.")] = 0
    largest_upload: Annotated[Bytes, Option("The largest file that is taken, e.g. 8G.", text=bytes_text)] = 8 * 2**30
    open: Annotated[bool, Option("Open the page in a browser.")] = False


def serve(request: ServeRequest, json: bool) -> None:
    """Serve a page, to this machine alone, on which models are dropped, measured and audited. Ctrl-C ends it.

    Example: exhume serve --open
    """
    from exhume.serving.server import serve as run

    def ready(address: str) -> None:
        if json:
            print_json({"address": address})
        say(f"open {address}", json)
        say("the address is a key: whoever has it can use this page. Files are removed at the end; Ctrl-C", json)
        if request.open:
            import webbrowser

            webbrowser.open(address)

    run(request.out, request.port, request.largest_upload, ready)
