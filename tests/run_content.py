"""What the page of a run is made of."""

from typing import Any

from exhume.experiments.run import RunFolder
from exhume.report.content import describe, gather
from exhume.report.run_subject import subject_of_run


def collect(run: RunFolder, reveal: bool) -> dict[str, Any]:
    subject = subject_of_run(run, reveal=reveal)
    return describe(subject, gather(subject), reveal)
