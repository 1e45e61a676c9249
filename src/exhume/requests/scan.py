"""What `exhume scan` is asked for."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from exhume.requests.request import Option, Request

FailOn = Literal["data", "leads", "unread"]


class ScanRequest(Request):
    command: ClassVar[str] = "scan"

    path: Annotated[Path, Option("A model file, or a folder as it would be published.", argument=True)]
    fail_on: Annotated[
        FailOn | None,
        Option("Exit with 1 at training data (data), also at leads to it (leads), also at unread files (unread)."),
    ] = None
    rows: Annotated[
        Path | None,
        Option("Write every stored record to this CSV file. It is training data: keep it to yourself."),
    ] = None
    sarif: Annotated[Path | None, Option("Write the findings as SARIF 2.1.0, which code hosts show.")] = None
