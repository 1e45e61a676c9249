"""Requests about a run folder that is there."""

from typing import Annotated, ClassVar

from exhume.requests.kinds import Factory, Run
from exhume.requests.request import Option, Request


class EvaluateRequest(Request):
    command: ClassVar[str] = "evaluate"

    run: Run
    model: Factory = None


class ReportRequest(Request):
    command: ClassVar[str] = "report"

    run: Run
    reveal: Annotated[bool, Option("Show recovered pictures, not blurred.")] = False
    model: Factory = None
